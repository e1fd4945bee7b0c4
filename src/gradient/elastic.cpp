#include "tulle/gradient/elastic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gradient/elastic_run.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/shrink.hpp"

namespace tulle::gradient {
namespace {

// ---------------------------------------------------------------- what ranks tell each other

constexpr int kWishBits = 2;

std::uint64_t packed(std::uint64_t completed, Wish wish) {
  return completed << kWishBits | static_cast<std::uint64_t>(wish);
}
std::uint64_t completed_of(std::uint64_t value) { return value >> kWishBits; }

std::uint64_t fewest_completed(const Agreement& agreement) {
  const auto [least, most] = std::ranges::minmax(agreement.values, {}, completed_of);
  if (completed_of(most) - completed_of(least) <= 1) return completed_of(least);
  throw Error(ErrorKind::mismatch,
              fmt::format("a rank has completed {} steps and another {}: a step has to depend on something of every "
                          "rank, or they cannot be undone together",
                          completed_of(most), completed_of(least)));
}

// ---------------------------------------------------------------- errors

Error error_for_others(const std::exception_ptr& error, int rank) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& thrown) {
    return thrown.at_rank(rank);
  } catch (const std::exception& thrown) {
    return Error(ErrorKind::system, thrown.what()).at_rank(rank);
  } catch (...) {
    return Error(ErrorKind::system, "a step threw something").at_rank(rank);
  }
}

void check_options(const Communicator& communicator, const ElasticOptions& options) {
  const auto refuse = [](const std::string& why) { throw Error(ErrorKind::bad_input, "run_elastic: " + why); };
  if (options.least_ranks < 1) refuse(fmt::format("least_ranks is {}, and 1 is the least", options.least_ranks));
  if (options.most_tries < 1) refuse(fmt::format("most_tries is {}, and 1 is the least", options.most_tries));
  const bool grows = options.grow || options.await_grow;
  if ((options.grow_every > 0) != grows) refuse("grow_every goes with grow, or with await_grow");
  if (grows && options.synchronizer == nullptr) refuse("newcomers need a synchronizer");
  if (options.synchronizer == nullptr) return;
  if (!options.synchronizer->can_undo()) refuse("the synchronizer cannot undo steps: SynchronizerOptions::undo");
  if (options.synchronizer->communicator().context() != communicator.context()) {
    refuse("the synchronizer is on another communicator");
  }
}

}  // namespace

// ---------------------------------------------------------------- the run

bool can_go_on_after(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& thrown) {
    const ErrorKind kind = thrown.kind();
    return kind == ErrorKind::peer_failed || kind == ErrorKind::deadline || kind == ErrorKind::broken;
  } catch (...) {
    return false;
  }
}

ElasticRun::ElasticRun(Communicator& communicator, const ElasticOptions& options)
    : communicator_(communicator), options_(options) {
  check_options(communicator, options);
  if (options.synchronizer != nullptr) completed_ = options.synchronizer->completed_steps();
  looked_at_ = completed_;
}

// Follows from what is completed alone: ranks that went back from different steps look at the same time again.
bool ElasticRun::may_grow() const {
  return options_.grow_every > 0 && has_more() && completed_ > looked_at_ && completed_ % options_.grow_every == 0;
}

void ElasticRun::begin_step() {
  journal_.begin(completed_).save(options_.arrays);
  is_begun_ = true;
}

void ElasticRun::end_step() {
  const std::uint64_t expected = completed_ + 1;
  if (options_.synchronizer != nullptr && options_.synchronizer->completed_steps() != expected) {
    throw Error(ErrorKind::bad_input, fmt::format("run_elastic: step {} has not been one step of the synchronizer, "
                                                  "which has completed {}",
                                                  completed_, options_.synchronizer->completed_steps()));
  }
  completed_ = expected;
  is_begun_ = false;
  report_.steps = completed_;
}

Task<bool> ElasticRun::settle(Wish wish, std::exception_ptr error) {
  if (error) break_communicator(communicator_, error_for_others(error, communicator_.rank()));
  if (error && !can_go_on_after(error)) std::rethrow_exception(error);
  Request<Agreement> agreeing = iagree(communicator_, packed(completed_, wish), options_.agree);
  const Agreement agreement = co_await agreeing;
  const auto wants_it = [&](std::uint64_t value) { return value == packed(completed_, wish); };
  if (wish != Wish::repeat && std::ranges::all_of(agreement.values, wants_it)) co_return true;
  const std::uint64_t completed = fewest_completed(agreement);
  Request<Communicator> shrinking = ishrink(communicator_, options_.agree);
  const Communicator next = co_await shrinking;
  const MembershipChange change = change_to(next);
  Task<> going = go_back(next, completed);
  co_await going;
  count(change, error);
  co_return false;
}

MembershipChange ElasticRun::change_to(const Communicator& next) const {
  MembershipChange change;
  const auto& old = communicator_.context()->world_ranks;
  const auto& left = next.context()->world_ranks;
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    if (std::ranges::find(left, old[static_cast<std::size_t>(rank)]) != left.end()) {
      change.survivors.push_back(rank);
      continue;
    }
    LostRank lost{.rank = rank, .residual = {}};
    if (options_.synchronizer != nullptr) lost.residual = options_.synchronizer->known_residual(rank);
    change.lost.push_back(lost);
  }
  return change;
}

Task<> ElasticRun::go_back(Communicator next, std::uint64_t completed) {
  if (options_.synchronizer != nullptr) {
    Task<> moving = options_.synchronizer->await_move_to(next, completed);
    co_await moving;
  }
  const ArrayCopy* const before = journal_.find(completed);
  if (before != nullptr) before->restore(options_.arrays);
  journal_.forget();
  is_begun_ = before != nullptr;
  report_.undone += is_begun_;
  completed_ = completed;
  looked_at_ = std::min(looked_at_, completed);
  report_.steps = completed;
  communicator_ = std::move(next);
}

void ElasticRun::count(const MembershipChange& change, const std::exception_ptr& error) {
  MembershipChange told = change;
  told.step = completed_;
  told.is_undone = std::exchange(is_begun_, false);
  report_.shrinks += 1;
  report_.lost.insert(report_.lost.end(), told.lost.begin(), told.lost.end());
  const bool is_progress = !told.lost.empty() || completed_ > failed_at_ || tries_ == 0;
  tries_ = is_progress ? 1 : tries_ + 1;
  failed_at_ = completed_;
  if (communicator_.size() < options_.least_ranks) {
    throw Error(ErrorKind::peer_failed,
                fmt::format("{} ranks are left, and least_ranks is {}", communicator_.size(), options_.least_ranks))
        .at_rank(communicator_.rank());
  }
  if (tries_ > options_.most_tries) {
    if (error) std::rethrow_exception(error);
    throw Error(ErrorKind::peer_failed,
                fmt::format("step {} failed {} times on other ranks, and none of them was lost", completed_, tries_))
        .at_rank(communicator_.rank());
  }
  untold_.push_back(told);
}

void ElasticRun::tell_changes() {
  while (!untold_.empty()) {
    const MembershipChange change = std::move(untold_.front());
    untold_.erase(untold_.begin());
    if (options_.on_change) options_.on_change(communicator_, change);
  }
}

// ---------------------------------------------------------------- its two forms

namespace {

// What goes wrong with newcomers is no reason to stop: the job goes on without them. What is no Error is.
std::exception_ptr failure_to_grow() {
  try {
    throw;
  } catch (const Error& error) {
    return std::make_exception_ptr(Error(ErrorKind::peer_failed, fmt::format("no newcomers: {}", error.what())));
  } catch (...) {
    return std::current_exception();
  }
}

Task<> await_growth(ElasticRun& run, Communicator& communicator, const ElasticOptions& options) {
  Communicator grown = communicator;
  std::exception_ptr error;
  try {
    Task<Communicator> growing = options.await_grow(communicator);
    grown = co_await growing;
    if (grown.context() != communicator.context()) {
      Task<> welcoming = run.welcome(grown);
      co_await welcoming;
    }
  } catch (...) {
    error = failure_to_grow();
  }
  if (error || grown.context() != communicator.context()) {
    Task<bool> settling = run.settle(error ? Wish::repeat : Wish::grow, error);
    const bool are_all_ready = co_await settling;
    if (are_all_ready) {
      Task<> taking = run.take_up(grown);
      co_await taking;
    }
  }
  run.note_look();
}

}  // namespace

Task<ElasticReport> await_run_elastic(Communicator& communicator, ElasticOptions options, ElasticProgram step) {
  if (options.grow) {
    throw Error(ErrorKind::bad_input, "await_run_elastic: grow blocks; await_grow is for programs");
  }
  ElasticRun run(communicator, options);
  while (true) {
    if (run.may_grow()) {
      Task<> growing = await_growth(run, communicator, options);
      co_await growing;
    }
    std::exception_ptr error;
    try {
      run.tell_changes();
      if (run.has_more()) {
        run.begin_step();
        Task<> stepping = step(communicator, run.step());
        co_await stepping;
        run.end_step();
      }
    } catch (...) {
      error = std::current_exception();
    }
    if (!error && run.has_more()) continue;
    Task<bool> settling = run.settle(error ? Wish::repeat : Wish::end, error);
    const bool is_over = co_await settling;
    if (is_over) co_return run.report();
  }
}

namespace {

std::exception_ptr try_step(ElasticRun& run, Communicator& communicator, const ElasticStep& step) {
  try {
    run.tell_changes();
    if (run.has_more()) {
      run.begin_step();
      step(communicator, run.step());
      run.end_step();
    }
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

bool settle(ElasticRun& run, Communicator& communicator, Wish wish, const std::exception_ptr& error) {
  Communicator old = communicator;  // whose engine the task is driven by
  return run_task(old, run.settle(wish, error));
}

// The same as await_growth(), but the old ranks' communicator and the new one may have engines of their own.
void grow(ElasticRun& run, Communicator& communicator, const ElasticOptions& options) {
  Communicator grown = communicator;
  std::exception_ptr error;
  try {
    grown = options.grow(communicator);
    if (grown.context() != communicator.context()) {
      Task<> welcoming = run.welcome(grown);
      run_task(grown, welcoming);
    }
  } catch (...) {
    error = failure_to_grow();
  }
  if (error || grown.context() != communicator.context()) {
    if (settle(run, communicator, error ? Wish::repeat : Wish::grow, error)) {
      Communicator old = communicator;
      Task<> taking = run.take_up(grown);
      run_task(old, taking);
    }
  }
  run.note_look();
}

}  // namespace

ElasticReport run_elastic(Communicator& communicator, const ElasticOptions& options, const ElasticStep& step) {
  if (options.await_grow) {
    throw Error(ErrorKind::bad_input, "run_elastic: await_grow is for programs; give grow");
  }
  ElasticRun run(communicator, options);
  while (true) {
    if (run.may_grow()) grow(run, communicator, options);
    const std::exception_ptr error = try_step(run, communicator, step);
    if (!error && run.has_more()) continue;
    if (settle(run, communicator, error ? Wish::repeat : Wish::end, error)) return run.report();
  }
}

}  // namespace tulle::gradient
