#include "cli/common/flags.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "cli/common/numbers.hpp"
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
  add(command, "--transport", TULLE_HAVE_MPI ? "mpi|tcp|threads|sim" : "tcp|threads|sim",
      "how messages travel (mpi under mpirun, tcp under tulle run, else threads)", [&flags](const std::string& text) {
        transport_from(text);
        flags.transport = text;
      });
  add_int(command, "--ranks", "of threads and sim (4)", 1, 65536, [&flags](int number) { flags.ranks = number; });
  add(command, "--deadline", "SECONDS", "for every call that ranks make together; 0 means the library's default (0)",
      [&flags](const std::string& text) {
        const double seconds = parse_real(text);
        flags.deadline_seconds = seconds > 0 ? std::optional(seconds) : std::nullopt;
      });
  add(command, "--checksums", "on|off|all",
      "of payloads on TCP's sockets, of none, or of all on every transport, in place of TULLE_CHECKSUM (on)",
      [](const std::string& text) {
        if (text != "on" && text != "off" && text != "all")
          reject("--checksums", fmt::format("'{}' is not on, off or all", text));
        ::setenv("TULLE_CHECKSUM", text.c_str(), 1);
      });
}

void add_profile_flag(CLI::App& command, LaunchFlags& flags) {
  add(command, "--profile", "FILE", "constants that 'tulle probe -o FILE' measured, in place of TULLE_PROFILE",
      [&flags](const std::string& text) { flags.profile_path = text; });
}

namespace {

// Where a launcher has started ranks, they are the job.
std::optional<TransportChoice> transport_of(const Job& job) {
  if (job.has_rendezvous) return TransportChoice::tcp;
  if (job.is_under_mpirun) return TransportChoice::mpi;
  return std::nullopt;
}

}  // namespace

LaunchOptions resolve_launch(const LaunchFlags& flags, const Job& job) {
  if (job.is_under_mpirun && !TULLE_HAVE_MPI) {
    reject("--transport", "this tulle was built without MPI: run it without mpirun, over threads or sim");
  }
  const std::optional<TransportChoice> given = transport_of(job);
  const std::string launcher = job.has_rendezvous ? "tulle run" : "mpirun";
  LaunchOptions options;
  options.transport = given.value_or(TransportChoice::threads);
  if (flags.transport) options.transport = transport_from(*flags.transport);
  if (given && options.transport != *given) {
    reject("--transport", fmt::format("'{}' is not {}, the only value allowed under {}", *flags.transport,
                                      job.has_rendezvous ? "tcp" : "mpi", launcher));
  }
  if (!given && options.transport == TransportChoice::tcp) {
    reject("--transport", "tcp needs TULLE_RANK, TULLE_SIZE and TULLE_ADDRESS: tulle run -n 4 -- tulle ... sets them");
  }
  if (flags.ranks && given) {
    reject("--ranks", fmt::format("is for --transport threads and sim; {} -n says how many there are", launcher));
  }
  options.ranks = flags.ranks.value_or(4);
  options.profile_path = flags.profile_path;
  options.deadline_seconds = flags.deadline_seconds;
  if (flags.profile_path && job.prints()) {  // other ranks may have no such file: rank 0 tells them
    options.profile = told_by("--profile", [&] { return read_profile(*flags.profile_path).profile; });
  }
  return options;
}

}  // namespace tulle::cli
