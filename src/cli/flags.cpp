#include "cli/flags.hpp"

#include <fmt/format.h>

#include "cli/numbers.hpp"
#include "tulle/comm/profile_file.hpp"

namespace tulle::cli {

int parse_int(const std::string& flag, const std::string& text, int least, int most) {
  const std::string allowed = fmt::format("'{}' is not a whole number from {} to {}", text, least, most);
  try {
    const std::uint64_t number = parse_count(text);
    if (number >= static_cast<std::uint64_t>(least) && number <= static_cast<std::uint64_t>(most)) {
      return static_cast<int>(number);
    }
  } catch (const Error&) {
  }
  reject(flag, allowed);
}

CLI::Option* add_int(CLI::App& command, const std::string& flag, const std::string& help, int least, int most,
                     std::function<void(int)> store) {
  return add(command, flag, fmt::format("{}..{}", least, most), help,
             [=](const std::string& text) { store(parse_int(flag, text, least, most)); });
}

CLI::Option* add_real(CLI::App& command, const std::string& flag, const std::string& values, const std::string& help,
                      double& number) {
  return add(command, flag, values, help, [&number](const std::string& text) { number = parse_real(text); });
}

void add_launch_flags(CLI::App& command, LaunchFlags& flags) {
  add(command, "--transport", TULLE_HAVE_MPI ? "mpi|threads|sim" : "threads|sim",
      "how messages travel (mpi under mpirun, else threads)", [&flags](const std::string& text) {
        transport_from(text);
        flags.transport = text;
      });
  add_int(command, "--ranks", "of threads and sim (4)", 1, 65536, [&flags](int number) { flags.ranks = number; });
}

void add_profile_flag(CLI::App& command, LaunchFlags& flags) {
  add(command, "--profile", "FILE", "constants that 'tulle probe -o FILE' measured, in place of TULLE_PROFILE",
      [&flags](const std::string& text) { flags.profile_path = text; });
}

LaunchOptions resolve_launch(const LaunchFlags& flags, const Job& job) {
  if (job.is_under_mpirun && !TULLE_HAVE_MPI) {
    reject("--transport", "this tulle was built without MPI: run it without mpirun, over threads or sim");
  }
  LaunchOptions options;
  options.transport = job.is_under_mpirun ? TransportChoice::mpi : TransportChoice::threads;
  if (flags.transport) options.transport = transport_from(*flags.transport);
  if (job.is_under_mpirun && options.transport != TransportChoice::mpi) {
    reject("--transport", fmt::format("'{}' is not mpi, the only value allowed under mpirun", *flags.transport));
  }
  if (flags.ranks && options.transport == TransportChoice::mpi) {
    reject("--ranks", "is for --transport threads and sim; mpirun -n says how many there are");
  }
  options.ranks = flags.ranks.value_or(4);
  options.profile_path = flags.profile_path;
  if (flags.profile_path && job.prints()) {  // other ranks may have no such file: rank 0 tells them
    options.profile = told_by("--profile", [&] { return read_profile(*flags.profile_path).profile; });
  }
  return options;
}

}  // namespace tulle::cli
