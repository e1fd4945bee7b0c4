// How it works. Both directions take most bytes by loops that the compiler makes for each target, and the last ones,
// after which there is no room for what those write too much, by plain ones.
//
// Writing, quintets are taken by blocks of 64, of which a word says where the zeros are. Runs and what is between them
// are found by counting bits, without a branch for each quintet, which nobody could foretell. What is between is copied
// in portions of 16 bytes: those too many are overwritten by what follows.
//
// Reading, sixteen values are written for each byte, which is enough for all but runs of four and more.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/zero_runs.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep; must come before highway.h
#include "hwy/highway.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "codec/zero_runs.hpp"

#ifndef TULLE_ZERO_RUNS_BLOCKS
#define TULLE_ZERO_RUNS_BLOCKS
namespace tulle {

constexpr std::size_t kBlock = 64, kPortion = 16;

/// Writes the bytes of a run and returns their end; one more byte is written and worthless.
inline std::uint8_t* put_run(std::size_t run, std::uint8_t* out) {
  for (; run >= kLongestRun; run -= kLongestRun) *out++ = kRunBase + kLongestRun;
  *out = run == 1 ? kFiveZeros : static_cast<std::uint8_t>(kRunBase + run);
  return out + (run > 0);
}

inline std::size_t quintets_in(std::uint8_t byte) { return byte <= kLargestQuintet ? 1u : byte - kRunBase; }

}  // namespace tulle
#endif

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {

// A bit for each quintet of a block, set where it is five zeros: of each eight bytes the high bits of those that do not
// differ from it, brought together by one product.
HWY_INLINE std::uint64_t zeros_in_block(const std::uint8_t* quintets) {
  constexpr std::uint64_t kLow = 0x7f7f7f7f7f7f7f7f;
  std::uint64_t zeros = 0;
  for (std::size_t i = 0; i < kBlock; i += 8) {
    std::uint64_t word;
    std::memcpy(&word, quintets + i, sizeof word);
    const std::uint64_t differs = word ^ 0x7979797979797979;
    const std::uint64_t same = ~(((differs & kLow) + kLow) | differs | kLow);
    zeros |= (same >> 7) * 0x0102040810204080 >> 56 << i;
  }
  return zeros;
}

// Copies whole portions and returns the end of the first `count` bytes.
HWY_INLINE std::uint8_t* put_others(const std::uint8_t* quintets, std::size_t count, std::uint8_t* out) {
  for (std::size_t i = 0; i < count; i += kPortion) std::memcpy(out + i, quintets + i, kPortion);
  return out + count;
}

HWY_INLINE std::uint8_t* put_block(const std::uint8_t* quintets, std::size_t& run, std::uint8_t* out) {
  std::uint64_t zeros = zeros_in_block(quintets);
  for (std::size_t at = 0; at < kBlock;) {
    const auto in_run = static_cast<std::size_t>(std::countr_one(zeros));
    run += in_run;
    at += in_run;
    if (at == kBlock) break;
    out = put_run(run, out);
    run = 0;
    zeros >>= in_run;
    const std::size_t others = std::min(static_cast<std::size_t>(std::countr_zero(zeros)), kBlock - at);
    out = put_others(quintets + at, others, out);
    at += others;
    zeros = at < kBlock ? zeros >> others : 0;
  }
  return out;
}

// REQUIRES: a portion can be read after the last block; as much room as quintets that were read, that portion included.
std::uint8_t* put_blocks(const std::uint8_t* quintets, std::size_t blocks, std::size_t* run, std::uint8_t* out) {
  std::size_t now = *run;
  for (std::size_t i = 0; i < blocks; ++i) out = put_block(quintets + i * kBlock, now, out);
  *run = now;
  return out;
}

// Values that a byte may write, those that it writes too many included.
constexpr std::size_t kRoomOfAByte = kLongestRun * kDigitsAByte + 8;
constexpr std::uint8_t kLongestShortRun = kRunBase + 3;

// Reads bytes for as long as there is room, moves `at` on, and returns how many were read.
std::size_t read_bytes(const std::uint8_t* in, std::size_t count, const float* eights, float* values, std::size_t size,
                       std::size_t* at) {
  constexpr float kZeros[8] = {};
  std::size_t place = *at, i = 0;
  for (; i < count && place + kRoomOfAByte <= size; ++i) {
    const std::uint8_t byte = in[i];
    const std::size_t written = quintets_in(byte) * kDigitsAByte;
    std::memcpy(values + place, eights + std::size_t{byte} * 8, sizeof kZeros);
    std::memcpy(values + place + 8, kZeros, sizeof kZeros);
    if (byte > kLongestShortRun) [[unlikely]] {
      for (std::size_t j = 16; j < written; j += 8) std::memcpy(values + place + j, kZeros, sizeof kZeros);
    }
    place += written;
  }
  *at = place;
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <utility>

#include "base/parallel.hpp"
#include "base/simd.hpp"
#include "codec/value_codings.hpp"

namespace tulle {

HWY_EXPORT(put_blocks);
HWY_EXPORT(read_bytes);

namespace {

bool is_all_zeros(const std::uint8_t* quintets) {
  std::uint64_t word;
  std::memcpy(&word, quintets, sizeof word);
  return word == 0x7979797979797979;
}

// The first place from `at` on that is no zeros.
std::size_t skip_zeros(std::span<const std::uint8_t> quintets, std::size_t at) {
  while (at + 8 <= quintets.size() && is_all_zeros(&quintets[at])) at += 8;
  while (at < quintets.size() && quintets[at] == kFiveZeros) ++at;
  return at;
}

// Where each part of about `part` quintets begins, and the end: cuts that part no run. A part inside a long run begins
// where the one before it does, so that every quintet is looked at once.
PoolVector<std::size_t> cuts_between_runs(std::span<const std::uint8_t> quintets, std::size_t part) {
  PoolVector<std::size_t> cuts{0};
  for (std::size_t at = part; at < quintets.size(); at += part) {
    cuts.push_back(skip_zeros(quintets, std::max(at, cuts.back())));
  }
  cuts.push_back(quintets.size());
  return cuts;
}

std::size_t quintets_in_all(std::span<const std::uint8_t> bytes) {
  std::size_t quintets = 0;
  for (const std::uint8_t byte : bytes) quintets += quintets_in(byte);
  return quintets;
}

void read_serially(std::span<const std::uint8_t> bytes, const QuintetTable& table, std::span<float> values) {
  const std::uint8_t* in = bytes.data();
  const std::uint8_t* const end = in + bytes.size();
  std::size_t at = 0;
  apply_simd_environment();
  in += HWY_DYNAMIC_DISPATCH(read_bytes)(in, bytes.size(), table.eights(), values.data(), values.size(), &at);
  while (in < end && at < values.size()) {
    const std::uint8_t byte = *in++;
    const std::size_t left = values.size() - at;
    const std::size_t length = quintets_in(byte);
    if (length > quintets_of(left)) reject_values("three_lc", "a run of zeros is too long");
    if (byte <= kLargestQuintet) {
      table.expand({&byte, 1}, values.subspan(at, std::min(kDigitsAByte, left)));
    } else {
      std::fill_n(values.data() + at, std::min(length * kDigitsAByte, left), 0.0f);
    }
    at += std::min(length * kDigitsAByte, left);
  }
  if (at < values.size()) reject_values("three_lc", "the message ends before the last value");
  if (in != end) reject_values("three_lc", fmt::format("{} bytes too many", end - in));
  if (!values.empty() && end[-1] <= kLargestQuintet && !has_valid_padding(end[-1], values.size())) {
    reject_values("three_lc", "padding is not zeros");
  }
}

}  // namespace

void ZeroRunWriter::put(std::span<const std::uint8_t> quintets) {
  apply_simd_environment();
  const std::size_t blocks = quintets.size() < kPortion ? 0 : (quintets.size() - kPortion) / kBlock;
  out_ = HWY_DYNAMIC_DISPATCH(put_blocks)(quintets.data(), blocks, &run_, out_);
  put_rest(quintets.subspan(blocks * kBlock));
}

void ZeroRunWriter::put_rest(std::span<const std::uint8_t> quintets) {
  std::size_t i = 0;
  while (i < quintets.size()) {
    for (; i < quintets.size() && quintets[i] == kFiveZeros; ++i) ++run_;
    if (i == quintets.size()) return;
    end_run();
    while (i < quintets.size() && quintets[i] != kFiveZeros) *out_++ = quintets[i++];
  }
}

void ZeroRunWriter::end_run() { out_ = put_run(std::exchange(run_, 0), out_); }

std::uint8_t* ZeroRunWriter::finish() {
  if (run_ > 0) end_run();
  return out_;
}

std::uint8_t* write_zero_runs(std::span<const std::uint8_t> quintets, std::size_t part, int threads,
                              std::uint8_t* out) {
  const PoolVector<std::size_t> cuts = cuts_between_runs(quintets, part);
  PoolVector<std::uint8_t> coded(quintets.size());
  PoolVector<std::size_t> lengths(cuts.size() - 1);
  parallel_for(threads, lengths.size(), [&](std::size_t i) {
    ZeroRunWriter writer(coded.data() + cuts[i]);
    writer.put(quintets.subspan(cuts[i], cuts[i + 1] - cuts[i]));
    lengths[i] = static_cast<std::size_t>(writer.finish() - (coded.data() + cuts[i]));
  });
  for (std::size_t i = 0; i < lengths.size(); ++i) out = std::copy_n(coded.data() + cuts[i], lengths[i], out);
  return out;
}

void read_zero_runs(std::span<const std::byte> bytes, const QuintetTable& table, std::span<float> values, int threads) {
  const std::span<const std::uint8_t> in(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  const std::size_t parts = buckets_of(in.size(), kQuintetsAPart);
  const auto part = [&](std::size_t i) {
    return in.subspan(i * kQuintetsAPart, std::min(kQuintetsAPart, in.size() - i * kQuintetsAPart));
  };
  if (threads == 1 || parts < 2) return read_serially(in, table, values);
  PoolVector<std::size_t> first(parts + 1);
  parallel_for(threads, parts, [&](std::size_t i) { first[i + 1] = quintets_in_all(part(i)); });
  for (std::size_t i = 0; i < parts; ++i) first[i + 1] += first[i];
  if (first.back() != quintets_of(values.size())) return read_serially(in, table, values);  // which says what is wrong
  parallel_for(threads, parts, [&](std::size_t i) {
    const std::size_t at = first[i] * kDigitsAByte;
    const std::size_t end = std::min(first[i + 1] * kDigitsAByte, values.size());
    read_serially(part(i), table, values.subspan(at, end - at));
  });
}

}  // namespace tulle
#endif  // HWY_ONCE
