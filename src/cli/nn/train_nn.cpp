// tulle train nn: becomes tulle-nn, the program beside this one that is linked with libtorch.

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "cli/commands.hpp"
#include "cli/common/launch.hpp"
#include "tulle/base/error.hpp"

namespace tulle::cli {
namespace {

constexpr const char* kProgram = "tulle-nn";

// Ranks share the cores, and each computes with one thread; libraries read this when they are loaded.
void compute_alone() {
  for (const char* const variable : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}) {
    ::setenv(variable, "1", /*overwrite=*/0);
  }
}

int become(const std::vector<std::string>& arguments) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / kProgram;
  if (!std::filesystem::exists(program)) {
    throw Error(
        ErrorKind::unsupported,
        fmt::format("this tulle was built without libtorch: {} is not there. On Debian install libtorch-dev and "
                    "libopenblas0-pthread, then build again",
                    program.string()));
  }
  compute_alone();
  std::vector<std::string> words = {program.string(), "train", "nn"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(pointers[0], pointers.data());
  throw Error(ErrorKind::system, fmt::format("{}: {}", program.string(), std::strerror(errno)));
}

}  // namespace

void add_train_nn_command(CLI::App& parent, Action& action) {
  CLI::App* const command = parent.add_subcommand("nn", "Train a deep network (needs libtorch)");
  command->set_help_flag();  // that program has the flags
  command->prefix_command();
  command->callback([command, &action] {
    action = [arguments = command->remaining()] { return guarded([&] { return become(arguments); }); };
  });
}

}  // namespace tulle::cli
