// Profile files: text is refused with bad_input, or read, and what was read is written so that it is read as the same.
#include "tulle/comm/profile_file.hpp"

#include <string>

#include "fuzz/fuzz.hpp"

using namespace tulle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const MeasuredProfile measured = parse_profile(text, "fuzz");
    fuzz::require(parse_profile(profile_text(measured), "again") == measured, "a profile survives being written");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::bad_input, error.what());
  }
  return 0;
}
