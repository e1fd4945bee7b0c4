// What rows have learned (AlgorithmState): what is read is written as text that is read as the same.
#include "fuzz/fuzz.hpp"
#include "tulle/collectives/state.hpp"

using namespace tulle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::read_hostile([&] {
    const AlgorithmState state = load_state(text);
    const std::string written = save_state(state);
    const AlgorithmState again = load_state(written);
    fuzz::require(save_state(again) == written, "a state says the same when it is written again");
    fuzz::require(again.fingerprint() == state.fingerprint(), "a state has the same fingerprint when it is read again");
  });
  return 0;
}
