#include "tulle/base/crc32c.hpp"

#include <array>
#include <bit>
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

// The instruction takes three cycles, and a new one may begin in each. So three *lanes* of a block are summed side by
// side and then joined: a state moves over the zeros that stand for what follows it. Shorter lanes: joins show. Longer:
// fewer arrays are long enough.
constexpr std::size_t kLaneBytes = 1024;

/// Moves a state over kLaneBytes zero bytes: that is linear, so four looked-up bytes are added.
class OverLane {
 public:
  OverLane() {
    static constexpr auto kTable = make_table();
    std::array<std::uint32_t, 32> of_bit{};
    for (std::size_t bit = 0; bit < of_bit.size(); ++bit) {
      of_bit[bit] = std::uint32_t{1} << bit;
      for (std::size_t i = 0; i < kLaneBytes; ++i) of_bit[bit] = (of_bit[bit] >> 8) ^ kTable[of_bit[bit] & 0xffu];
    }
    for (std::size_t place = 0; place < tables_.size(); ++place) {
      for (std::size_t byte = 1; byte < tables_[place].size(); ++byte) {
        const auto lowest = static_cast<std::size_t>(std::countr_zero(byte));
        tables_[place][byte] = tables_[place][byte & (byte - 1)] ^ of_bit[8 * place + lowest];
      }
    }
  }
  std::uint32_t operator()(std::uint64_t state) const {
    return tables_[0][state & 0xffu] ^ tables_[1][state >> 8 & 0xffu] ^ tables_[2][state >> 16 & 0xffu] ^
           tables_[3][state >> 24 & 0xffu];
  }

 private:
  std::array<std::array<std::uint32_t, 256>, 4> tables_{};
};

std::uint64_t word_at(const std::byte* bytes) {
  std::uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

__attribute__((target("sse4.2"))) std::uint64_t sum_block(const std::byte* bytes, std::uint64_t state) {
  static const OverLane over_lane;
  std::uint64_t second = 0, third = 0;
  for (std::size_t i = 0; i < kLaneBytes; i += 8) {
    state = _mm_crc32_u64(state, word_at(bytes + i));
    second = _mm_crc32_u64(second, word_at(bytes + kLaneBytes + i));
    third = _mm_crc32_u64(third, word_at(bytes + 2 * kLaneBytes + i));
  }
  return over_lane(over_lane(state) ^ second) ^ third;
}

__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(std::span<const std::byte> bytes, std::uint32_t previous) {
  std::uint64_t state = static_cast<std::uint32_t>(~previous);
  std::size_t i = 0;
  for (; i + 3 * kLaneBytes <= bytes.size(); i += 3 * kLaneBytes) state = sum_block(bytes.data() + i, state);
  for (; i + 8 <= bytes.size(); i += 8) state = _mm_crc32_u64(state, word_at(bytes.data() + i));
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
