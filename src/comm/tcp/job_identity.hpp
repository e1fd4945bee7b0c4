// The name of a job, by which ranks of two jobs that meet at one place know that they are not of the same.
#pragma once

#include <cstddef>
#include <string>

namespace tulle {

inline constexpr std::size_t kMostBytesOfJob = 256;

/// `job`, or job_from_environment() where it is empty. Throws bad_input where it is longer than kMostBytesOfJob.
std::string required_job(const std::string& job);

/// For messages, which also strangers get: "the job TULLE_JOB=night-7", "a job without a name". Of a long name, which
/// is one that nobody can guess, the beginning.
std::string describe_job(const std::string& job);

/// What to do about two jobs that meet, for the end of a message.
inline constexpr const char* kJobRemedy =
    "give each job an address of its own, and set TULLE_JOB to the same name on all ranks of a job";

}  // namespace tulle
