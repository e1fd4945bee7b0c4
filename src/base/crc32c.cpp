#include "tulle/base/crc32c.hpp"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tulle {
namespace {

constexpr std::uint32_t kReversedPolynomial = 0x82f63b78u;

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1) ^ ((remainder & 1u) ? kReversedPolynomial : 0u);
    table[byte] = remainder;
  }
  return table;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(std::span<const std::byte> bytes, std::uint32_t previous) {
  std::uint64_t state = ~previous;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    state = _mm_crc32_u64(state, word);
  }
  auto narrow = static_cast<std::uint32_t>(state);
  for (; i < bytes.size(); ++i) narrow = _mm_crc32_u8(narrow, static_cast<unsigned char>(bytes[i]));
  return ~narrow;
}
#endif

}  // namespace

std::uint32_t crc32c_reference(std::span<const std::byte> bytes, std::uint32_t previous) {
  static constexpr auto kTable = make_table();
  std::uint32_t state = ~previous;
  for (const std::byte byte : bytes) state = (state >> 8) ^ kTable[(state ^ static_cast<std::uint32_t>(byte)) & 0xffu];
  return ~state;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return crc32c_sse42(bytes, previous);
#endif
  return crc32c_reference(bytes, previous);
}

}  // namespace tulle
