// Checkpoints of trainings: a description and arrays.
#include "base/checkpoint.hpp"

#include "fuzz/fuzz.hpp"

using namespace tulle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kHeaderBytes = 24;
  std::string text(reinterpret_cast<const char*>(data), size);
  if (size % 8 != 7) fuzz::mend_checksum(text, 16, kHeaderBytes, text.size());
  fuzz::read_hostile([&] {
    const CheckpointFile file = CheckpointFile::read(*open_memory("fuzz", text));
    fuzz::require(kHeaderBytes + file.description().size() <= size, "a description lies in the file");
    std::vector<std::byte> array(size - kHeaderBytes - file.description().size());
    file.restore({std::span(array)});
    std::vector<std::byte> another(array.size() + 1);
    try {
      file.restore({std::span(another)});
    } catch (const Error&) {
      return;
    }
    fuzz::require(false, "arrays of other sizes are refused");
  });
  return 0;
}
