// Our kernels beside libstreamvbyte, on every instruction set that this CPU has.
#include "codec/stream_vbyte.hpp"

#include <streamvbyte.h>

#include "codec/codec_model.hpp"

namespace tulle::test {
namespace {

// Numbers of one to four bytes, all lengths alike.
std::vector<std::uint32_t> random_numbers(std::size_t count) {
  Philox random(count);
  std::vector<std::uint32_t> numbers(count);
  for (auto& number : numbers) number = static_cast<std::uint32_t>(random() & 0xFFFFFFFF) >> (8 * random.below(4));
  return numbers;
}

std::vector<std::uint8_t> library_bytes(const std::vector<std::uint32_t>& numbers) {
  const auto count = static_cast<std::uint32_t>(numbers.size());
  std::vector<std::uint8_t> bytes(streamvbyte_max_compressedbytes(count) + 16);
  bytes.resize(streamvbyte_encode(numbers.data(), count, bytes.data()));
  return bytes;
}

std::vector<std::uint8_t> our_bytes(const std::vector<std::uint32_t>& numbers) {
  std::vector<std::uint8_t> bytes(numbers.size() * 5 + 1 + kStreamVbyteSlack);
  const auto* const begin = reinterpret_cast<const std::byte*>(bytes.data());
  bytes.resize(
      static_cast<std::size_t>(stream_vbyte_encode(numbers, reinterpret_cast<std::byte*>(bytes.data())) - begin));
  return bytes;
}

std::vector<std::uint32_t> decode(std::span<const std::byte> bytes, std::size_t count) {
  const auto control = bytes.first(stream_vbyte_control_bytes(count));
  const auto data = bytes.subspan(control.size());
  EXPECT_EQ(stream_vbyte_data_bytes(control, count), data.size());
  std::vector<std::uint32_t> numbers(count);
  stream_vbyte_decode(control, data, numbers);
  return numbers;
}

TEST(StreamVbyte, bytes_are_those_of_the_library_on_every_target) {
  for_each_target([] {
    for (const std::size_t count : {0, 1, 2, 3, 4, 5, 7, 8, 15, 64, 1001}) {
      const auto numbers = random_numbers(count);
      const auto bytes = library_bytes(numbers);
      EXPECT_EQ(our_bytes(numbers), bytes) << count;
      EXPECT_EQ(stream_vbyte_bytes(numbers), bytes.size()) << count;
      EXPECT_EQ(decode(std::as_bytes(std::span(bytes)), count), numbers) << count;
    }
  });
}

}  // namespace
}  // namespace tulle::test
