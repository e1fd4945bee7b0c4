#include "measure/machine.hpp"

#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <fstream>

#include "tulle/version.hpp"

namespace tulle::measure {
namespace {

std::string cpu_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

int usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
  return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::string compiler() {
#ifdef __clang__
  return "Clang " __clang_version__;
#else
  return "GCC " __VERSION__;
#endif
}

}  // namespace

Machine this_machine() {
  const char* lab = std::getenv("TULLE_LAB");
  return {.host = host_name(),
          .cpu = cpu_model(),
          .cores = usable_cores(),
          .compiler = compiler(),
          .tulle_version = TULLE_VERSION,
          .git_commit = TULLE_GIT_COMMIT,
          .lab = lab != nullptr ? lab : ""};
}

std::string utc_timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

}  // namespace tulle::measure
