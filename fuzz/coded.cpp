// Files of `tulle encode`: what is decoded has as many values as the head says.
#include "cli/common/value_file.hpp"
#include "fuzz/fuzz.hpp"

using namespace tulle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kHeadBytes = 32;
  std::string text(reinterpret_cast<const char*>(data), size);
  if (size % 8 != 7) {
    fuzz::mend_checksum(text, 24, kHeadBytes, text.size());
    fuzz::mend_checksum(text, 28, 0, 28);
  }
  try {
    const cli::CodedFile file = cli::parse_coded(Buffer::copy_of(std::as_bytes(std::span(text))), "fuzz");
    // One number may stand for all values: how many there are is then believed, and takes their memory.
    if (file.count > 1 << 20) return 0;
    const Buffer values = cli::decode_coded(file, "fuzz");
    fuzz::require(values.size() == file.count * size_of(file.type), "as many values as the head says");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::bad_message, error.what());
  }
  return 0;
}
