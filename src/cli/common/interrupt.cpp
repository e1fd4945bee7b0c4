#include "cli/common/interrupt.hpp"

#include <atomic>
#include <csignal>

namespace tulle::cli {
namespace {

std::atomic<bool> interrupted = false;

}  // namespace

void catch_interrupts() {
  for (const int number : {SIGINT, SIGTERM}) {
    std::signal(number, [](int caught) {
      interrupted = true;
      std::signal(caught, SIG_DFL);
    });
  }
}

bool is_interrupted() { return interrupted.load(); }

}  // namespace tulle::cli
