// Where a measurement was made: facts without which its numbers mean little.
#pragma once

#include <string>

namespace tulle::measure {

struct Machine {
  std::string host;
  std::string cpu;  ///< the model's name
  int cores = 0;    ///< that this process may use
  std::string compiler;
  std::string tulle_version;
  std::string git_commit;  ///< at configure time; empty where it was not known
  std::string lab;         ///< TULLE_LAB: which network lab the job runs in; empty for none
};

/// This machine and this build.
Machine this_machine();

/// Now, as "2024-05-31T12:00:00Z".
std::string utc_timestamp();

}  // namespace tulle::measure
