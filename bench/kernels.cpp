// Kernels against their obvious rivals, as ratios of medians in one run: the two take turns, so that a noisy machine
// slows both. Every result is checked before it is timed.
//
//   tulle_bench_kernels [--json FILE]
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "stream/kernels.hpp"
#include "tulle/base/philox.hpp"

namespace tulle::bench {
namespace {

using Work = std::function<void()>;

constexpr int kRounds = 15;

// The thread's own time: what other processes take does not count.
double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_of(const Work& work) {
  const double begin = now();
  work();
  return now() - begin;
}

double median(std::vector<double> times) {
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  return times[times.size() / 2];
}

struct Row {
  std::string name;
  std::string rival;
  double seconds = 0;
  double rival_seconds = 0;
  std::uint64_t items = 0;

  double ratio() const { return rival_seconds / seconds; }
};

Row compare(std::string name, const Work& ours, std::string rival_name, const Work& rival, std::uint64_t items) {
  std::vector<double> our_times;
  std::vector<double> rival_times;
  ours();
  rival();
  for (int round = 0; round < kRounds; ++round) {
    our_times.push_back(seconds_of(ours));
    rival_times.push_back(seconds_of(rival));
  }
  return {std::move(name), std::move(rival_name), median(our_times), median(rival_times), items};
}

void require(bool condition, const std::string& what) {
  if (condition) return;
  fmt::print(stderr, "wrong result: {}\n", what);
  std::exit(1);
}

/// `nnz` distinct random indices in order, with random values.
Stream<float> random_stream(std::uint64_t dimension, std::uint64_t nnz, std::uint64_t seed) {
  Philox random(seed);
  std::vector<std::uint32_t> indices(nnz);
  for (auto& index : indices) index = static_cast<std::uint32_t>(random.below(dimension));
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  std::vector<float> values(indices.size());
  for (float& value : values) value = static_cast<float>(random.uniform() - 0.5);
  return Stream<float>::from_sorted(dimension, std::span<const std::uint32_t>(indices), std::span<const float>(values));
}

// The straightforward rivals. Their memory comes from the same pool, so that only the loops differ.

AnyStream branchy_merge(const AnyStream& lower, const AnyStream& higher) {
  const auto a = lower.indices_buffer().as<std::uint32_t>();
  const auto b = higher.indices_buffer().as<std::uint32_t>();
  const auto x = lower.values_buffer().as<float>();
  const auto y = higher.values_buffer().as<float>();
  Buffer index_buffer = Buffer::allocate((a.size() + b.size()) * sizeof(std::uint32_t));
  Buffer value_buffer = Buffer::allocate((a.size() + b.size()) * sizeof(float));
  auto* indices = reinterpret_cast<std::uint32_t*>(index_buffer.mutable_data());
  auto* values = reinterpret_cast<float*>(value_buffer.mutable_data());
  std::size_t i = 0;
  std::size_t j = 0;
  std::size_t n = 0;
  while (i < a.size() && j < b.size()) {
    if (a[i] < b[j]) {
      indices[n] = a[i];
      values[n++] = x[i++];
    } else if (b[j] < a[i]) {
      indices[n] = b[j];
      values[n++] = y[j++];
    } else {
      indices[n] = a[i];
      values[n++] = x[i++] + y[j++];
    }
  }
  for (; i < a.size(); ++i, ++n) indices[n] = a[i], values[n] = x[i];
  for (; j < b.size(); ++j, ++n) indices[n] = b[j], values[n] = y[j];
  return AnyStream::sparse(ValueType::f32, lower.dimension(), lower.range(),
                           index_buffer.slice(0, n * sizeof(std::uint32_t)), value_buffer.slice(0, n * sizeof(float)));
}

AnyStream merge_pairwise(std::span<const AnyStream> streams) {
  AnyStream sum = streams[0];
  for (const AnyStream& stream : streams.subspan(1)) sum = merge(sum, stream, Op::sum());
  return sum;
}

__attribute__((noinline)) void plain_add(float* __restrict sum, const float* __restrict a, const float* __restrict b,
                                         std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

__attribute__((noinline)) void plain_add_to(float* __restrict sum, const float* __restrict a, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += a[i];
}

Row bench_merge(int log2_dimension) {
  const std::uint64_t dimension = std::uint64_t{1} << log2_dimension;
  const AnyStream a = random_stream(dimension, 1'000'000, 1);
  const AnyStream b = random_stream(dimension, 1'000'000, 2);
  require(merge(a, b, Op::sum()) == branchy_merge(a, b), "merge");
  return compare(
      fmt::format("merge 1M + 1M of 2^{}", log2_dimension), [&] { merge(a, b, Op::sum()); }, "branchy loop",
      [&] { branchy_merge(a, b); }, a.nnz() + b.nnz());
}

// Two readings of memory bandwidth: a += b, which moves 12 bytes per value, and c = a + b, which also fetches c.
constexpr std::size_t kDenseCount = std::size_t{1} << 24;

Row bench_dense_in_place() {
  const std::vector<float> b(kDenseCount, 2.0f);
  std::vector<float> plain(kDenseCount, 1.0f);
  AnyStream sum = Stream<float>::dense(plain);
  const AnyStream other = Stream<float>::borrow_dense(b);
  const auto ours = [&] { sum = reduce(std::move(sum), other, Op::sum()); };
  const auto rival = [&] { plain_add_to(plain.data(), b.data(), kDenseCount); };
  ours();
  rival();
  require(std::memcmp(sum.values_buffer().data(), plain.data(), kDenseCount * sizeof(float)) == 0,
          "dense sum in place");
  return compare("dense += dense, 16M floats", ours, "plain a += b", rival, kDenseCount);
}

Row bench_dense() {
  const std::vector<float> a(kDenseCount, 1.0f);
  const std::vector<float> b(kDenseCount, 2.0f);
  Buffer plain = Buffer::allocate(kDenseCount * sizeof(float));
  const AnyStream lower = Stream<float>::borrow_dense(a);
  const AnyStream higher = Stream<float>::borrow_dense(b);
  const auto ours = [&] { return reduce(lower, higher, Op::sum()); };
  const auto rival = [&] { plain_add(plain.as_mutable<float>().data(), a.data(), b.data(), kDenseCount); };
  rival();
  require(std::memcmp(ours().values_buffer().data(), plain.data(), plain.size()) == 0, "dense sum");
  return compare("dense + dense, 16M floats", ours, "plain c = a + b", rival, kDenseCount);
}

Row bench_many(double density, std::size_t count) {
  constexpr std::uint64_t kRange = std::uint64_t{1} << 22;
  std::vector<AnyStream> streams;
  for (std::size_t s = 0; s < count; ++s) {
    streams.push_back(random_stream(kRange, static_cast<std::uint64_t>(density * kRange), 10 + s));
  }
  std::uint64_t items = 0;
  for (const AnyStream& stream : streams) items += stream.nnz();
  const auto ours = [&] { return reduce_many(streams, Op::sum(), nullptr, LayoutChoice::sparse); };
  require(ours() == merge_pairwise(streams), "reduce_many");
  return compare(
      fmt::format("reduce {} streams of 4M at {} %", count, density * 100), ours, "pairwise merges",
      [&] { merge_pairwise(streams); }, items);
}

void print(const Row& row) {
  fmt::print("{:34} {:9.3f} ms {:7.2f} ns/item   {:16} {:9.3f} ms   ratio {:5.2f}\n", row.name, row.seconds * 1e3,
             row.seconds * 1e9 / static_cast<double>(row.items), row.rival, row.rival_seconds * 1e3, row.ratio());
}

void write_json(const std::string& path, const std::vector<Row>& rows) {
  std::ofstream file(path);
  for (const Row& row : rows) {
    file
        << fmt::format(
               R"({{"kind": "kernel", "name": "{}", "rival": "{}", "seconds": {}, "rival_seconds": {}, "items": {}, "ratio": {}}})",
               row.name, row.rival, row.seconds, row.rival_seconds, row.items, row.ratio())
        << '\n';
  }
}

}  // namespace
}  // namespace tulle::bench

int main(int argc, char** argv) {
  using namespace tulle::bench;
  if (argc != 1 && !(argc == 3 && std::string(argv[1]) == "--json")) {
    fmt::print(stderr, "usage: tulle_bench_kernels [--json FILE]\n");
    return 2;
  }
  std::vector<Row> rows;
  const auto add = [&](Row row) {
    print(row);
    rows.push_back(std::move(row));
  };
  add(bench_merge(24));
  add(bench_merge(31));
  add(bench_dense_in_place());
  add(bench_dense());
  for (const double density : {0.001, 0.01, 0.1}) {
    for (const std::size_t count : {4, 16}) add(bench_many(density, count));
  }
  if (argc == 3) write_json(argv[2], rows);
}
