// One value coding, TULLE_CODING: as many values as were asked for, finite where the coding promises that.
#include <cmath>

#include "fuzz/fuzz.hpp"
#include "tulle/codec/value_coding.hpp"

using namespace tulle;

namespace {

void check(const Buffer& values, ValueType type, std::uint64_t count) {
  fuzz::require(values.size() == count * size_of(type), "as many values as were asked for");
  if (ValueCoding::TULLE_CODING <= ValueCoding::bf16 || type != ValueType::f32) return;
  for (const float value : values.as<float>()) fuzz::require(std::isfinite(value), "finite values");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::uint64_t count = input.take<std::uint16_t>();
  const ValueType type = kAllValueTypes[input.take<std::uint8_t>() % std::size(kAllValueTypes)];
  const fuzz::Bytes bytes = input.rest();
  fuzz::decode_hostile([&] { check(decode_values(ValueCoding::TULLE_CODING, type, bytes, count), type, count); });
  return 0;
}
