#include "tulle/codec/index_coding.hpp"

#include <cassert>
#include <cmath>
#include <numbers>

#include "codec/index_codings.hpp"
#include "stream/kernels.hpp"
#include "tulle/codec/registry.hpp"

namespace tulle {
namespace {

std::uint64_t raw_bytes(const AnyStream& stream) { return stream.nnz() * stream.index_width(); }
Buffer encode_raw(const AnyStream& stream) { return stream.indices_buffer().to_owned(); }
double raw_expected_bits(double, std::size_t index_width) { return static_cast<double>(index_width * 8); }

Buffer decode_raw(std::span<const std::byte> bytes, Range range, std::uint64_t dimension, std::uint64_t nnz,
                  Buffer landing) {
  const std::size_t width = index_bytes(dimension);
  if (bytes.size() % width != 0 || bytes.size() / width != nnz) {
    reject_indices("raw", fmt::format("{} bytes are not {} items of {} bytes", bytes.size(), nnz, width));
  }
  if (landing.empty()) landing = Buffer::allocate(bytes.size());
  std::ranges::copy(bytes, landing.data_for_landing());
  try {
    visit_index_type(dimension, [&]<class I>() { require_sorted(landing.as<I>(), dimension, range); });
  } catch (const Error& error) {
    reject_indices("raw", error.what());
  }
  return landing;
}

// In the order in which equal sizes are preferred: the faster first.
constexpr IndexCodec kIndexCodecs[] = {
    {"raw", IndexCoding::raw, "positions as they lie in memory", "SparCML, section 5.1", raw_bytes, encode_raw,
     decode_raw, raw_expected_bits},
    {"bitmap", IndexCoding::bitmap, "one bit for each position", "", bitmap_bytes, encode_bitmap, decode_bitmap,
     bitmap_expected_bits},
    {"delta_vbyte", IndexCoding::delta_vbyte, "gaps in 1 to 4 bytes, lengths apart (Stream VByte)",
     "Lemire, Kurz, Rupp 2018", delta_vbyte_bytes, encode_delta_vbyte, decode_delta_vbyte, delta_vbyte_expected_bits},
    {"rice", IndexCoding::rice, "Golomb-Rice codes of gaps, within 1 % of the entropy", "Golomb 1966, Rice 1979",
     rice_bytes, encode_rice, decode_rice, rice_expected_bits},
};

const IndexCodec& row_of(IndexCoding coding) {
  for (const IndexCodec& row : kIndexCodecs) {
    if (row.coding == coding) return row;
  }
  throw Error(ErrorKind::bad_message, fmt::format("{} is no index coding", static_cast<int>(coding)));
}

double log_factorial(double n) {
  int sign = 0;
  return ::lgamma_r(n + 1, &sign);
}

}  // namespace

std::span<const IndexCodec> index_codecs() { return kIndexCodecs; }

std::string_view to_string(IndexCoding coding) { return coding == IndexCoding::none ? "none" : row_of(coding).name; }

std::uint64_t encoded_index_bytes(IndexCoding coding, const AnyStream& stream) {
  assert(!stream.is_dense() && !stream.is_phantom());
  return row_of(coding).bytes(stream);
}

IndexCoding smallest_index_coding(const AnyStream& stream) {
  IndexCoding best = IndexCoding::raw;
  std::uint64_t best_bytes = raw_bytes(stream);
  for (const IndexCodec& row : kIndexCodecs) {
    const std::uint64_t bytes = row.bytes(stream);
    if (bytes < best_bytes) best = row.coding, best_bytes = bytes;
  }
  return best;
}

Buffer encode_indices(IndexCoding coding, const AnyStream& stream) {
  assert(!stream.is_dense() && !stream.is_phantom());
  return row_of(coding).encode(stream);
}

Buffer decode_indices(IndexCoding coding, std::span<const std::byte> bytes, Range range, std::uint64_t dimension,
                      std::uint64_t nnz, Buffer landing) {
  if (nnz > range.size()) {
    reject_indices(to_string(coding), fmt::format("{} indices do not fit in {} positions", nnz, range.size()));
  }
  return row_of(coding).decode(bytes, range, dimension, nnz, std::move(landing));
}

double expected_index_bits(IndexCoding coding, double density, std::size_t index_width) {
  return row_of(coding).expected_bits(density, index_width);
}

double index_entropy_bits(double extent, double nnz) {
  if (nnz <= 0) return 0;
  const double nats = log_factorial(extent) - log_factorial(nnz) - log_factorial(extent - nnz);
  return nats / (nnz * std::numbers::ln2);
}

}  // namespace tulle
