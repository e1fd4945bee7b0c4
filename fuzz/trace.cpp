// Traces of trainings (`tulle simulate --trace`): what is read is written as lines that are read as the same.
#include "fuzz/fuzz.hpp"
#include "tulle/gradient/training_trace.hpp"

using namespace tulle;
using namespace tulle::gradient;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::read_hostile([&] {
    const TrainingTrace trace = parse_training_trace(text, "fuzz");
    fuzz::require(!trace.parameters.empty() && trace.compute_seconds() >= 0, "a trace has something to play");
    const std::string written = to_text(trace);
    fuzz::require(to_text(parse_training_trace(written, "fuzz")) == written,
                  "a trace says the same when it is written again");
  });
  return 0;
}
