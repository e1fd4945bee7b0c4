#include "comm/tcp/job_identity.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "tulle/base/error.hpp"
#include "tulle/comm/rendezvous.hpp"

namespace tulle {
namespace {

// All that are set, of variables that together are one name: the first of them must be.
using Variables = std::array<const char*, 2>;
std::string name_of(const Variables& variables) {
  std::string name;
  for (const char* const variable : variables) {
    if (variable == nullptr) break;
    const char* const value = std::getenv(variable);
    const bool is_set = value != nullptr && *value != '\0';
    if (!is_set && name.empty()) return {};
    if (is_set) name += fmt::format("{}{}={}", name.empty() ? "" : " ", variable, value);
  }
  return name;
}

}  // namespace

std::string job_from_environment() {
  // torchrun may start the ranks of one job in several steps of a scheduler's job, so its own name goes first.
  static constexpr Variables kNames[] = {
      {"TULLE_JOB"}, {"TORCHELASTIC_RUN_ID"},       {"SLURM_JOB_ID", "SLURM_STEP_ID"},
      {"PBS_JOBID"}, {"LSB_JOBID", "LSB_JOBINDEX"}, {"FLUX_JOB_ID"}};
  for (const Variables& variables : kNames) {
    if (std::string name = name_of(variables); !name.empty()) return name;
  }
  return {};
}

std::string required_job(const std::string& job) {
  std::string name = job.empty() ? job_from_environment() : job;
  if (name.size() <= kMostBytesOfJob) return name;
  throw Error(ErrorKind::bad_input,
              fmt::format("the name of the job, '{}...', has {} bytes, and may have {}: TULLE_JOB "
                          "names it",
                          name.substr(0, 32), name.size(), kMostBytesOfJob));
}

std::string describe_job(const std::string& job) {
  constexpr std::size_t kLongestShown = 40, kShownOfLonger = 20;
  if (job.empty()) return "a job without a name";
  return job.size() <= kLongestShown ? fmt::format("the job {}", job)
                                     : fmt::format("the job {}...", job.substr(0, kShownOfLonger));
}

}  // namespace tulle
