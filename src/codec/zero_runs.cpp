#include "codec/zero_runs.hpp"

#include <algorithm>
#include <cstring>

#include "base/parallel.hpp"
#include "codec/value_codings.hpp"

namespace tulle {
namespace {

bool is_all_zeros(const std::uint8_t* quintets) {
  std::uint64_t word;
  std::memcpy(&word, quintets, sizeof word);
  return word == 0x7979797979797979;
}

// The first place from `at` on where a cut parts no run.
std::size_t next_cut(std::span<const std::uint8_t> quintets, std::size_t at) {
  while (at < quintets.size() && quintets[at] == kFiveZeros) ++at;
  return std::min(at, quintets.size());
}

}  // namespace

void ZeroRunWriter::put(std::span<const std::uint8_t> quintets) {
  std::size_t i = 0;
  while (i < quintets.size()) {
    for (; i + 8 <= quintets.size() && is_all_zeros(&quintets[i]); i += 8) run_ += 8;
    for (; i < quintets.size() && quintets[i] == kFiveZeros; ++i) ++run_;
    if (i == quintets.size()) return;
    end_run();
    while (i < quintets.size() && quintets[i] != kFiveZeros) *out_++ = quintets[i++];
  }
}

void ZeroRunWriter::end_run() {
  for (; run_ >= kLongestRun; run_ -= kLongestRun) *out_++ = kRunBase + kLongestRun;
  if (run_ == 1) *out_++ = kFiveZeros;
  if (run_ > 1) *out_++ = static_cast<std::uint8_t>(kRunBase + run_);
  run_ = 0;
}

std::uint8_t* ZeroRunWriter::finish() {
  end_run();
  return out_;
}

std::uint8_t* write_zero_runs(std::span<const std::uint8_t> quintets, std::size_t part, int threads,
                              std::uint8_t* out) {
  const std::size_t parts = buckets_of(quintets.size(), part);
  PoolVector<std::uint8_t> coded(quintets.size());
  PoolVector<std::size_t> lengths(parts);
  const auto begin_of = [&](std::size_t i) { return i == 0 ? 0 : next_cut(quintets, i * part); };
  parallel_for(threads, parts, [&](std::size_t i) {
    const std::size_t begin = begin_of(i), end = begin_of(i + 1);
    ZeroRunWriter writer(coded.data() + begin);
    writer.put(quintets.subspan(begin, end - begin));
    lengths[i] = static_cast<std::size_t>(writer.finish() - (coded.data() + begin));
  });
  for (std::size_t i = 0; i < parts; ++i) out = std::copy_n(coded.data() + begin_of(i), lengths[i], out);
  return out;
}

void read_zero_runs(std::span<const std::byte> bytes, const QuintetTable& table, std::span<float> values) {
  const auto* in = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const std::uint8_t* const end = in + bytes.size();
  std::size_t at = 0;
  while (in < end && at < values.size()) {
    const std::uint8_t byte = *in++;
    const std::size_t left = values.size() - at;
    const std::size_t length = byte <= kLargestQuintet ? 1 : byte - kRunBase;
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

}  // namespace tulle
