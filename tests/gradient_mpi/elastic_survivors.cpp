// elastic_survivors VICTIM FILE: four ranks train by run_elastic, and one is killed in the middle of a step.
//
// Every rank that has come to the end appends "survivor R: STEPS steps, model CRC, RANKS ranks, lost ranks ..." to
// FILE, which is the same on all but for R; one that has not appends "survivor R: " and its error. Standard output may
// be gone by then with the launcher. Ends without MPI_Finalize, which would wait for the dead.
#include <fcntl.h>
#include <fmt/format.h>
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "tulle/base/crc32c.hpp"
#include "tulle/comm/mpi.hpp"
#include "tulle/gradient/elastic.hpp"

namespace {

using namespace tulle;
using namespace tulle::gradient;

constexpr std::uint64_t kSteps = 20, kKilledIn = 6;
constexpr std::size_t kWeights = 4000;
// Nothing tells of a death here but silence. A step that is late on a busy machine is repeated; a rank that comes later
// to an agreement than the others' patience lasts is left out.
constexpr double kDeadlineSeconds = 3, kPatienceSeconds = 6, kAgreementSeconds = 60;

void report(const char* path, int rank, const std::string& words) {
  const std::string line = fmt::format("survivor {}: {}\n", rank, words);
  const int file = open(path, O_WRONLY | O_APPEND);
  if (file < 0 || write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::perror(path);
}

// Whole numbers, so that sums have the same bits in any order.
std::vector<float> gradient_of(int process, std::uint64_t step) {
  std::vector<float> gradient(kWeights);
  for (std::size_t i = 0; i < kWeights; ++i) {
    gradient[i] =
        static_cast<float>((i * 2654435761u + static_cast<std::size_t>(process) * 40503u + step * 977u) % 256);
  }
  return gradient;
}

std::string train(Communicator communicator, int victim) {
  const int process = communicator.rank();
  communicator.set_default_deadline(kDeadlineSeconds);
  std::vector<float> weights(kWeights, 0.0f);
  Synchronizer synchronizer =
      Synchronizer::make(communicator, {{"weights", kWeights}}, parse_recipe("topk:10%"), {.undo = true});
  const ElasticReport done =
      run_elastic(communicator,
                  {.steps = kSteps,
                   .synchronizer = &synchronizer,
                   .arrays = {std::as_writable_bytes(std::span(weights))},
                   .agree = {.deadline_seconds = kAgreementSeconds, .patience_seconds = kPatienceSeconds}},
                  [&](Communicator&, std::uint64_t step) {
                    std::vector<float> update = gradient_of(process, step);
                    synchronizer.start(0, std::span<const float>(update));
                    synchronizer.end_step();
                    if (process == victim && step == kKilledIn) raise(SIGKILL);
                    synchronizer.finish_into(0, update);
                    for (std::size_t i = 0; i < kWeights; ++i) weights[i] -= 0.25f * update[i];
                  });
  std::string lost;
  for (const LostRank& each : done.lost) lost += fmt::format(" {}", each.rank);
  return fmt::format("{} steps, model {:08x}, {} ranks, lost{}", done.steps, crc32c(std::as_bytes(std::span(weights))),
                     communicator.size(), lost);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const tulle::MpiSession session;
  const Communicator communicator = mpi_communicator(MPI_COMM_WORLD);
  try {
    report(argv[2], communicator.rank(), train(communicator, std::stoi(argv[1])));
  } catch (const std::exception& error) {
    report(argv[2], communicator.rank(), error.what());
  }
  sleep(1);  // for the others to come to their end before this process is gone
  _exit(0);
}
