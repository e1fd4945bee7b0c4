// One rank of a training that storm_lab.py starts in the network lab, whose hosts it takes away and gives back.
//
//   tulle_elastic_rank DIRECTORY HOST NUMBER LIFE HOSTS HIDDEN SECONDS
//
// HOST is the name under which other hosts know this one, and NUMBER is its own. The first processes (LIFE 0) meet in
// DIRECTORY; later ones join. Each writes DIRECTORY/log.NUMBER.LIFE, and the file `stop` says when it is enough.
// Computing a gradient takes SECONDS at least: hosts of a lab share the processors of one machine, and one that is lost
// would make the others faster.
//
// The door is wherever rank 0 is, and moves when that dies. Rank 0 writes where it is to the file `door`, which those
// who want to join read before each try.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "storm/perceptron.hpp"
#include "storm/rank_log.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/comm/admission.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/gradient/elastic.hpp"

namespace tulle::storm {
namespace {

using gradient::ElasticOptions;
using gradient::MembershipChange;
using gradient::Synchronizer;

constexpr std::uint64_t kStretch = 16;  // steps after which ranks ask whether it is enough
constexpr std::uint64_t kGrowEvery = 4;
constexpr float kRate = 0.05f;
constexpr gradient::SynchronizerOptions kOptions = {.replica_check_every = 8, .undo = true};
// Nobody needs a deadline to know of a rank that was killed. They are for what else may happen.
constexpr double kDeadlineSeconds = 60, kMeetSeconds = 60, kAdmissionSeconds = 20;
constexpr AgreeOptions kAgree = {.deadline_seconds = 60, .patience_seconds = 20};
constexpr double kKnockSeconds = 5;  // at one door; then it looks where the door is now
constexpr std::chrono::milliseconds kBetweenLooks(20);

struct Arguments {
  std::string directory, host;
  std::uint64_t number = 0;
  int life = 0, hosts = 0;
  std::size_t hidden = 0;
  double seconds = 0;
};

// A host that goes dark says no goodbye, and is known by its silence.
TcpOptions tcp_options() { return {.deadline_seconds = kAdmissionSeconds, .silence_seconds = 3}; }

class Rank {
 public:
  Rank(Arguments arguments, Log& log)
      : arguments_(std::move(arguments)),
        log_(log),
        network_(arguments_.hidden),
        gradient_(network_.weights().size()) {}

  int run() {
    if (arguments_.life == 0) {
      meet();
    } else if (!come_in()) {
      return kNotStarted;
    }
    while (!is_enough_) {
      ElasticOptions options = elastic_options();
      options.steps = (synchronizer_->completed_steps() / kStretch + 1) * kStretch;
      run_elastic(*ranks_, options, [&](Communicator& ranks, std::uint64_t step) { train(ranks, step); });
    }
    log_.write({{"event", "end"},
                {"ranks", ranks_->size()},
                {"step", synchronizer_->completed_steps()},
                {"crc", crc32c(std::as_bytes(network_.weights()))}});
    return kStopped;
  }

 private:
  // ---------------------------------------------------------------- becoming a rank

  void meet() {
    const auto rendezvous = directory_rendezvous({.path = arguments_.directory + "/meet",
                                                  .rank = static_cast<int>(arguments_.number),
                                                  .size = arguments_.hosts,
                                                  .deadline_seconds = kMeetSeconds});
    ranks_ = connect(*rendezvous, tcp_options());
    ranks_->set_default_deadline(kDeadlineSeconds);
    synchronizer_ = Synchronizer::make(*ranks_, network_.parameters(), recipe(), kOptions);
    keep_door(*ranks_);
  }

  // False where the job ended before it let this process in.
  bool come_in() {
    const std::vector<std::span<std::byte>> arrays = {std::as_writable_bytes(network_.weights())};
    while (!is_stop_asked()) {
      try {
        Communicator grown = join(where_the_door_is(), tcp_options());
        grown.set_default_deadline(kDeadlineSeconds);
        synchronizer_ = join_elastic(grown, network_.parameters(), recipe(), kOptions, arrays);
        ranks_ = grown;
        return true;
      } catch (const Error& error) {
        nlohmann::json line = to_json(error);
        line["event"] = "not_in";
        log_.write(std::move(line));
      }
    }
    return false;
  }

  // ---------------------------------------------------------------- the door

  std::string door_path() const { return arguments_.directory + "/door"; }

  void keep_door(const Communicator& ranks) {
    if (ranks.rank() != 0 || door_) return;
    door_.emplace(DoorOptions{.host = arguments_.host});
    const std::string draft = door_path() + "." + std::to_string(arguments_.number);
    std::ofstream(draft) << arguments_.host << " " << door_->port() << std::flush;
    std::filesystem::rename(draft, door_path());
  }

  JoinOptions where_the_door_is() const {
    JoinOptions where{.deadline_seconds = kKnockSeconds};
    while (!(std::ifstream(door_path()) >> where.host >> where.port)) std::this_thread::sleep_for(kBetweenLooks);
    return where;
  }

  // ---------------------------------------------------------------- training

  static gradient::Recipe recipe() { return gradient::parse_recipe("topk:1%"); }

  ElasticOptions elastic_options() {
    return {.synchronizer = &*synchronizer_,
            .arrays = {std::as_writable_bytes(network_.weights())},
            .agree = kAgree,
            .on_change = [this](Communicator& ranks, const MembershipChange& change) { say_change(ranks, change); },
            .grow_every = kGrowEvery,
            .grow =
                [this](Communicator& ranks) {
                  keep_door(ranks);
                  return admit(ranks, door_ ? &*door_ : nullptr, tcp_options());
                }};
  }

  void say_change(const Communicator& ranks, const MembershipChange& change) {
    log_.write({{"event", "change"},
                {"step", change.step},
                {"ranks", ranks.size()},
                {"lost", change.lost.size()},
                {"joined", change.joined},
                {"is_undone", change.is_undone}});
  }

  void train(Communicator& ranks, std::uint64_t step) {
    const auto begun = std::chrono::steady_clock::now();
    const double loss = network_.differentiate(make_batch(arguments_.number, step), gradient_);
    std::this_thread::sleep_until(begun + std::chrono::duration<double>(arguments_.seconds));
    synchronizer_->step(network_.layers_of(gradient_));  // which makes the update of it
    const std::span<float> weights = network_.weights();
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= kRate * gradient_[i];
    if ((step + 1) % kStretch == 0) ask_whether_enough(ranks);
    log_.write({{"event", "step"}, {"step", step}, {"ranks", ranks.size()}, {"loss", loss}});
  }

  bool is_stop_asked() const { return ::access((arguments_.directory + "/stop").c_str(), F_OK) == 0; }

  // All ranks ask, in a step, so that none goes on alone and the answer is undone with the step.
  void ask_whether_enough(Communicator& ranks) {
    const double mine[] = {is_stop_asked() ? 1.0 : 0.0};
    is_enough_ = combine(ranks, mine, Op::max())[0] != 0;
  }

  Arguments arguments_;
  Log& log_;
  Perceptron network_;
  std::vector<float> gradient_;
  std::optional<Communicator> ranks_;
  std::optional<Synchronizer> synchronizer_;
  std::optional<Door> door_;
  bool is_enough_ = false;
};

int run(const Arguments& arguments) {
  const std::string name = std::to_string(arguments.number) + "." + std::to_string(arguments.life);
  Log log(arguments.directory + "/log." + name);
  try {
    return Rank(arguments, log).run();
  } catch (const Error& error) {
    nlohmann::json line = to_json(error);
    const bool is_excluded = error.kind() == ErrorKind::excluded;
    line["event"] = is_excluded ? "excluded" : "unexpected";
    log.write(std::move(line));
    return is_excluded ? kExcluded : kUnexpected;
  } catch (const std::exception& error) {
    log.write({{"event", "unexpected"}, {"what", error.what()}});
    return kUnexpected;
  }
}

}  // namespace
}  // namespace tulle::storm

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  return tulle::storm::run({.directory = argv[1],
                            .host = argv[2],
                            .number = std::strtoull(argv[3], nullptr, 10),
                            .life = std::atoi(argv[4]),
                            .hosts = std::atoi(argv[5]),
                            .hidden = std::strtoull(argv[6], nullptr, 10),
                            .seconds = std::strtod(argv[7], nullptr)});
}
