#include "measure/codec_comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>

#include "stream/synthetic.hpp"
#include "tulle/codec/registry.hpp"

namespace tulle::measure {
namespace {

constexpr double kLeastIndices = 1e6;  // fewer would stay in a cache

struct Candidate {
  CodecRow row;
  std::function<void()> run;
  std::vector<double> seconds;
};
using Candidates = std::vector<Candidate>;

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double bits_per_item(const Buffer& coded, std::uint64_t items) {
  return 8.0 * static_cast<double>(coded.size()) / static_cast<double>(items);
}

Buffer magnitudes_of(const Buffer& values) {
  Buffer result = Buffer::copy_of(values.bytes());
  for (float& value : result.as_mutable<float>()) value = std::fabs(value);
  return result;
}

Candidate memcpy_of(const Buffer& source) {
  Buffer target = Buffer::copy_of(source.bytes());
  return {.row = {.name = "memcpy", .direction = "copy", .bits = 32, .verified = true},
          .run = [source, target]() mutable { std::memcpy(target.data_for_landing(), source.data(), source.size()); }};
}

// Exact codings give the same bits; the others at least point the same way.
bool verify(const ValueCodec& codec, const Buffer& values, const Buffer& decoded) {
  if (fidelity_of(codec.coding, ValueType::f32) == Fidelity::exact) {
    return std::ranges::equal(values.bytes(), decoded.bytes());
  }
  double product = 0;
  for (std::size_t i = 0; i < values.as<float>().size(); ++i) product += values.as<float>()[i] * decoded.as<float>()[i];
  return product > 0 && std::isfinite(product);
}

// The same coding in both directions.
void add_both(Candidates& candidates, const CodecRow& row, std::function<void()> encode, std::function<void()> decode) {
  candidates.push_back({.row = row, .run = std::move(encode)});
  candidates.back().row.direction = "encode";
  candidates.push_back({.row = row, .run = std::move(decode)});
  candidates.back().row.direction = "decode";
}

void add_value_codec(Candidates& candidates, const ValueCodec& codec, const Buffer& values) {
  const std::uint64_t items = values.size() / sizeof(float);
  const Buffer coded = encode_values(codec, ValueType::f32, values, {});
  const Buffer landing = decode_values(codec.coding, ValueType::f32, coded.bytes(), items);
  const CodecRow row{
      .name = to_string(codec), .bits = bits_per_item(coded, items), .verified = verify(codec, values, landing)};
  add_both(
      candidates, row, [=] { encode_values(codec, ValueType::f32, values, {}); },
      [=] { decode_values(codec.coding, ValueType::f32, coded.bytes(), items, landing); });
}

void add_index_codec(Candidates& candidates, const IndexCodec& codec, const AnyStream& stream) {
  const Buffer coded = codec.encode(stream);
  const auto decode = [=] { return codec.decode(coded.bytes(), stream.range(), stream.dimension(), stream.nnz(), {}); };
  const auto dimension = static_cast<double>(stream.dimension()), nnz = static_cast<double>(stream.nnz());
  const CodecRow row{.name = std::string(codec.name),
                     .bits = bits_per_item(coded, stream.nnz()),
                     .limit = index_entropy_bits(dimension, nnz),
                     .verified = std::ranges::equal(decode().bytes(), stream.indices_buffer().bytes())};
  add_both(
      candidates, row, [=] { codec.encode(stream); }, [=] { decode(); });
}

void run_rounds(Candidates& candidates, int repeats, Progress* progress) {
  for (int round = 0; round <= repeats; ++round) {
    for (Candidate& candidate : candidates) {
      const double seconds = seconds_of(candidate.run);
      if (round > 0) candidate.seconds.push_back(seconds);
    }
    if (round > 0 && progress != nullptr) progress->advance(1, "");
  }
}

std::vector<CodecRow> rows_of(const Candidates& candidates) {
  const double reference = quartiles(candidates.front().seconds).median;
  std::vector<CodecRow> rows;
  for (const Candidate& candidate : candidates) {
    rows.push_back(candidate.row);
    rows.back().seconds = quartiles(candidate.seconds);
    rows.back().ratio = rows.back().seconds.median / reference;
  }
  return rows;
}

}  // namespace

CodecCase compare_value_codecs(const std::string& name, const Buffer& values, std::span<const ValueCodec> codecs,
                               int repeats, Progress* progress) {
  Candidates candidates;
  candidates.push_back(memcpy_of(values));
  for (const ValueCodec& codec : codecs) {
    const bool is_of_one_sign = codec.coding == ValueCoding::same_sign_mean;
    add_value_codec(candidates, codec, is_of_one_sign ? magnitudes_of(values) : values);
  }
  run_rounds(candidates, repeats, progress);
  return {.name = name, .items = values.size() / sizeof(float), .rows = rows_of(candidates)};
}

CodecCase compare_index_codecs(double density, std::uint64_t count, int repeats, Progress* progress) {
  const double nnz = std::max(kLeastIndices, std::floor(density * static_cast<double>(count)));
  const AnyStream stream = synthetic_stream(
      {.dimension = static_cast<std::uint64_t>(nnz / density), .nnz = static_cast<std::uint64_t>(nnz)});
  Candidates candidates;
  candidates.push_back(memcpy_of(stream.indices_buffer()));
  for (const IndexCodec& codec : index_codecs()) add_index_codec(candidates, codec, stream);
  run_rounds(candidates, repeats, progress);
  return {.name = fmt::format("uniform indices, {}", density),
          .density = density,
          .items = stream.nnz(),
          .rows = rows_of(candidates)};
}

}  // namespace tulle::measure
