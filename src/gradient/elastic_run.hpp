// The state of run_elastic() between steps.
#pragma once

#include <exception>

#include "gradient/journal.hpp"
#include "tulle/gradient/elastic.hpp"

namespace tulle::gradient {

/// What a rank says in an agreement, beside the steps that it has completed.
enum class Wish : std::uint8_t {
  repeat,  ///< something failed here
  end,     ///< all steps are completed
  grow,    ///< newcomers are ready
};

/// Whether survivors can go on after it: somebody is lost, or late, or had told of such an error.
bool can_go_on_after(const std::exception_ptr& error);

class ElasticRun {
 public:
  /// Throws bad_input where options do not go together. What it is given must outlive it.
  ElasticRun(Communicator& communicator, const ElasticOptions& options);

  bool has_more() const { return completed_ < options_.steps; }
  std::uint64_t step() const { return completed_; }
  bool may_grow() const;
  /// Tells the program how members have changed since it was last told. What that throws is the next step's failure.
  void tell_changes();
  /// Around each call of the step.
  void begin_step();
  void end_step();
  /// Agrees with the others on how to go on: true where all want the same and nothing is to be undone, else those who
  /// are left have shrunk and undone. `error` is why this rank repeats. Throws it where nobody can help.
  Task<bool> settle(Wish wish, std::exception_ptr error);
  /// What newcomers need of the old ranks before they are taken up. Collective on `grown`.
  Task<> welcome(Communicator grown);
  /// From now on newcomers are members: see newcomers.cpp.
  Task<> take_up(Communicator grown);
  /// Nobody is looked for again until more steps are completed.
  void note_look() { looked_at_ = completed_; }

  const ElasticReport& report() const { return report_; }

 private:
  Task<> go_back(Communicator next, std::uint64_t completed);
  MembershipChange change_to(const Communicator& next) const;
  void count(const MembershipChange& change, const std::exception_ptr& error);

  Communicator& communicator_;
  const ElasticOptions& options_;
  Journal<ArrayCopy> journal_;
  ElasticReport report_;
  std::vector<MembershipChange> untold_;
  std::uint64_t completed_ = 0;
  std::uint64_t looked_at_ = 0;  ///< steps that were completed when newcomers were looked for; the same on all ranks
  std::uint64_t failed_at_ = 0;  ///< the step that the last shrink repeated
  int tries_ = 0;                ///< of that, in which nobody was lost
  bool is_begun_ = false;        ///< step completed_ was, here
};

}  // namespace tulle::gradient
