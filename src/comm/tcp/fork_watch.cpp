#include "comm/tcp/fork_watch.hpp"

#include <pthread.h>

#include <mutex>

namespace tulle {

struct ForkRegistry {
  std::mutex mutex;
  ForkWatch* first = nullptr;

  // Never destroyed: processes fork also while they end.
  static ForkRegistry& instance() {
    static ForkRegistry* const registry = [] {
      pthread_atfork(before, in_parent, in_child);
      return new ForkRegistry;
    }();
    return *registry;
  }

  template <class Action>
  static void for_each(Action action) {
    for (ForkWatch* watch = instance().first; watch != nullptr; watch = watch->next_) action(watch->watched_);
  }

  static void before() {
    instance().mutex.lock();
    for_each([](ForkAware& watched) { watched.hold_for_fork(); });
  }
  static void in_parent() {
    for_each([](ForkAware& watched) { watched.release_after_fork(); });
    instance().mutex.unlock();
  }
  static void in_child() {
    for_each([](ForkAware& watched) { watched.forget_in_child(); });
    in_parent();
  }

  void add(ForkWatch& watch) {
    const std::lock_guard lock(mutex);
    watch.next_ = first;
    if (first != nullptr) first->previous_ = &watch;
    first = &watch;
  }

  void remove(ForkWatch& watch) {
    const std::lock_guard lock(mutex);
    (watch.previous_ != nullptr ? watch.previous_->next_ : first) = watch.next_;
    if (watch.next_ != nullptr) watch.next_->previous_ = watch.previous_;
  }
};

ForkWatch::ForkWatch(ForkAware& watched) : watched_(watched) { ForkRegistry::instance().add(*this); }
ForkWatch::~ForkWatch() { ForkRegistry::instance().remove(*this); }

}  // namespace tulle
