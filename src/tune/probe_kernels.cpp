#include "tune/probe_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "tulle/base/philox.hpp"
#include "tulle/codec/registry.hpp"
#include "tulle/comm/profile_file.hpp"
#include "tulle/select/selector.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle {
namespace {

constexpr std::uint64_t kPairBytes = sizeof(std::uint32_t) + sizeof(float);

Buffer ones(std::uint64_t count) {
  Buffer values = Buffer::allocate(count * sizeof(float));
  std::ranges::fill(values.as_mutable<float>(), 1.0f);
  return values;
}

// One index somewhere in every stretch of 1/density: as good as uniform draws for a kernel, and made in no time.
AnyStream stream_of(std::uint64_t pairs, double density, int rank) {
  Philox random(static_cast<std::uint64_t>(rank));
  const auto stretch = static_cast<std::uint64_t>(1 / density);
  Buffer indices = Buffer::allocate(pairs * sizeof(std::uint32_t));
  std::uint64_t begin = 0;
  for (std::uint32_t& index : indices.as_mutable<std::uint32_t>()) {
    index = static_cast<std::uint32_t>(begin + random.below(stretch));
    begin += stretch;
  }
  return AnyStream::sparse(ValueType::f32, begin, {0, begin}, std::move(indices), ones(pairs));
}

// As an owner reduces what the others send: as many streams as ranks, up to where the kernel's cost is flat.
KernelRun prepare_sparse(std::uint64_t bytes, int ranks) {
  constexpr double kDensity = 0.01;
  const int ways = std::clamp(ranks, 2, 8);
  const std::uint64_t pairs = std::max<std::uint64_t>(1, bytes / kPairBytes / static_cast<std::uint64_t>(ways));
  std::vector<AnyStream> streams;
  for (int rank = 0; rank < ways; ++rank) streams.push_back(stream_of(pairs, kDensity, rank));
  return [streams] {
    KernelReport report;
    reduce_many(streams, Op::sum(), &report, LayoutChoice::sparse);
    return static_cast<double>(report.sparse_items);
  };
}

AnyStream dense_stream(std::uint64_t count) { return AnyStream::dense(ValueType::f32, count, {0, count}, ones(count)); }

// In place, as rows with a dense result reduce.
KernelRun prepare_dense(std::uint64_t bytes, int) {
  const std::uint64_t count = std::max<std::uint64_t>(1, bytes / 2 / sizeof(float));
  const auto sum = std::make_shared<AnyStream>(dense_stream(count));
  return [sum, other = dense_stream(count)] {
    KernelReport report;
    *sum = reduce(std::move(*sum), other, Op::sum(), &report);
    return static_cast<double>(report.dense_items);
  };
}

KernelRun prepare_select(std::uint64_t bytes, int) {
  constexpr double kDensity = 0.01;
  std::vector<float> values(std::max<std::uint64_t>(1, bytes / sizeof(float)));
  Philox random(1);
  for (float& value : values) value = static_cast<float>(random.uniform() - 0.5);
  return [values] {
    select("exact_top_k", std::span(values), {.density = kDensity, .threads = 1});
    return static_cast<double>(values.size());
  };
}

// A bitmap pays where every fourth value or more is there, the others where fewer are.
KernelRun prepare_coding(const IndexCodec& codec, std::uint64_t bytes) {
  const double density = codec.coding == IndexCoding::bitmap ? 0.25 : 0.01;
  const std::uint64_t pairs = std::max<std::uint64_t>(1, bytes / sizeof(std::uint32_t) / 2);
  return [coding = codec.coding, stream = stream_of(pairs, density, 0)] {
    const Buffer coded = encode_indices(coding, stream);
    decode_indices(coding, coded.bytes(), stream.range(), stream.dimension(), stream.nnz());
    return static_cast<double>(stream.nnz());
  };
}

bool is_constant(std::string_view name) {
  return std::ranges::any_of(profile_constants(), [&](const ProfileConstant& each) { return each.name == name; });
}

}  // namespace

std::vector<ProbeKernel> probe_kernels() {
  std::vector<ProbeKernel> kernels = {{"gamma_sparse_seconds", prepare_sparse},
                                      {"gamma_dense_seconds", prepare_dense},
                                      {"gamma_select_seconds", prepare_select}};
  for (const IndexCodec& codec : index_codecs()) {
    const std::string constant = fmt::format("gamma_{}_seconds", codec.name);
    if (!is_constant(constant)) continue;  // raw indices cost nothing
    kernels.push_back({constant, [&codec](std::uint64_t bytes, int) { return prepare_coding(codec, bytes); }});
  }
  return kernels;
}

double seconds_per_item(const KernelRun& run, double seconds, const std::function<double()>& clock) {
  run();
  const double started = clock();
  double items = 0, elapsed = 0;
  do {
    items += run();
    elapsed = clock() - started;
  } while (elapsed < seconds);
  return elapsed / std::max(items, 1.0);
}

}  // namespace tulle
