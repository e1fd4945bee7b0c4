// Tells objects that own sockets when they find themselves in a forked child.
//
// A child that keeps a rank's sockets open keeps the rank alive in the eyes of its peers after it has died.
#pragma once

namespace tulle {

/// What an object does about it.
class ForkAware {
 public:
  /// Keeps other threads from changing the object while the process forks, and lets them again, in both processes.
  virtual void hold_for_fork() noexcept = 0;
  virtual void release_after_fork() noexcept = 0;
  /// Runs in the child between the two. Locks of other objects may be held for ever there: close file descriptors, set
  /// flags, and nothing else.
  virtual void forget_in_child() noexcept = 0;

 protected:
  ~ForkAware() = default;
};

/// Registers an object for as long as it exists: make it the last member, so that the others are there.
class ForkWatch {
 public:
  explicit ForkWatch(ForkAware& watched);
  ~ForkWatch();
  ForkWatch(const ForkWatch&) = delete;
  ForkWatch& operator=(const ForkWatch&) = delete;

 private:
  friend struct ForkRegistry;

  ForkAware& watched_;
  ForkWatch* next_ = nullptr;
  ForkWatch* previous_ = nullptr;
};

}  // namespace tulle
