// delta_vbyte: gaps in one to four bytes each. The fastest coding that is smaller than raw.
//
// How it works. The gap before an index is index − previous, where the index before the first is begin − 1, so no gap
// is 0. Gaps are coded in blocks of 16,384 as Stream VByte (stream_vbyte.hpp), so that a block stays in the cache
// between the two passes. A gap of 2^32 or more, which only 64-bit indices can have, is coded as 0 and follows its
// block as a 64-bit number. How long a block is can be read from its control bytes, so nothing else is stored.
//
// Bytes: a quarter for the lengths and 1 to 4 for each gap: 1.33 an index at a density of 0.01, 2.02 at 0.001.
#include <algorithm>
#include <cmath>
#include <limits>

#include "codec/index_codings.hpp"
#include "codec/stream_vbyte.hpp"

namespace tulle {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 14;
constexpr std::uint64_t kLargestNarrow = std::numeric_limits<std::uint32_t>::max();

// Fills `gaps` and gives the number of wide ones among them. REQUIRES: indices is not empty.
template <class I>
std::size_t gaps_of(std::span<const I> indices, I previous, std::uint32_t* gaps) {
  std::size_t wide = 0;
  const auto put = [&](std::size_t i, I gap) {
    wide += gap > kLargestNarrow;
    gaps[i] = gap > kLargestNarrow ? 0 : static_cast<std::uint32_t>(gap);
  };
  put(0, indices[0] - previous);
  for (std::size_t i = 1; i < indices.size(); ++i) put(i, indices[i] - indices[i - 1]);
  return wide;
}

template <class I>
std::byte* append_wide(std::span<const I> indices, I previous, std::byte* out) {
  for (const I index : indices) {
    const std::uint64_t gap = index - previous;
    if (gap > kLargestNarrow) {
      std::memcpy(out, &gap, sizeof gap);
      out += sizeof gap;
    }
    previous = index;
  }
  return out;
}

// Calls function(indices, the one before them) for each block.
template <class I, class Function>
void for_each_block(const AnyStream& stream, Function&& function) {
  const std::span<const I> indices = stream.indices_buffer().as<I>();
  I previous = static_cast<I>(stream.range().begin - 1);
  for (std::size_t at = 0; at < indices.size(); at += kBlock) {
    const auto block = indices.subspan(at, std::min(kBlock, indices.size() - at));
    function(block, previous);
    previous = block.back();
  }
}

// No more wide gaps fit in a range than it has multiples of 2^32.
std::uint64_t most_bytes(const AnyStream& stream) {
  const std::uint64_t most_wide = std::min(stream.nnz(), stream.range().size() >> 32);
  return stream.nnz() * 5 + divide_up(stream.nnz(), kBlock) + most_wide * 8 + kStreamVbyteSlack;
}

// The part of a message that is still to be read.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  void read_block(std::span<std::uint32_t> gaps) {
    const auto control = take(stream_vbyte_control_bytes(gaps.size()), "lengths");
    validate_padding(control, gaps.size());
    const std::size_t data_bytes = stream_vbyte_data_bytes(control, gaps.size());
    if (data_bytes > bytes_.size()) reject_indices("delta_vbyte", "the message ends inside the gaps");
    stream_vbyte_decode(control, bytes_, gaps);
    bytes_ = bytes_.subspan(data_bytes);
  }
  std::uint64_t read_wide() { return load_at<std::uint64_t>(take(8, "a wide gap"), 0); }
  void expect_end() const {
    if (!bytes_.empty()) reject_indices("delta_vbyte", fmt::format("{} bytes too many", bytes_.size()));
  }

 private:
  std::span<const std::byte> take(std::size_t count, std::string_view what) {
    if (count > bytes_.size()) reject_indices("delta_vbyte", fmt::format("the message ends before {}", what));
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  static void validate_padding(std::span<const std::byte> control, std::size_t count) {
    if (count % 4 != 0 && std::to_integer<unsigned>(control.back()) >> (2 * (count % 4)) != 0) {
      reject_indices("delta_vbyte", "padding is not zero");
    }
  }
  std::span<const std::byte> bytes_;
};

// Turns gaps into indices. False where one leaves the range; what it wrote is then worthless.
template <class I>
bool add_up(std::span<const std::uint32_t> gaps, Range range, Reader& reader, std::uint64_t& previous, I* indices) {
  bool fits = true;
  for (const std::uint32_t narrow : gaps) {
    std::uint64_t gap = narrow;
    if (sizeof(I) == 8 && gap == 0) gap = reader.read_wide();
    fits &= gap - 1 < range.end - (previous + 1);  // gap 0 wraps and does not fit
    previous += gap;
    *indices++ = static_cast<I>(previous);
  }
  return fits;
}

template <class I>
void decode_blocks(Reader& reader, Range range, std::span<I> indices) {
  PoolVector<std::uint32_t> gaps(std::min(kBlock, indices.size()));
  std::uint64_t previous = range.begin - 1;
  for (std::size_t at = 0; at < indices.size(); at += kBlock) {
    const std::span<std::uint32_t> block(gaps.data(), std::min(kBlock, indices.size() - at));
    reader.read_block(block);
    if (!add_up<I>(block, range, reader, previous, indices.data() + at)) {
      reject_indices("delta_vbyte", fmt::format("indices do not increase within [{}, {})", range.begin, range.end));
    }
  }
}

}  // namespace

std::uint64_t delta_vbyte_bytes(const AnyStream& stream) {
  PoolVector<std::uint32_t> gaps(std::min<std::uint64_t>(kBlock, stream.nnz()));
  std::uint64_t bytes = 0;
  visit_index_type(stream.dimension(), [&]<class I>() {
    for_each_block<I>(stream, [&](std::span<const I> indices, I previous) {
      bytes += gaps_of(indices, previous, gaps.data()) * 8;
      bytes += stream_vbyte_bytes({gaps.data(), indices.size()});
    });
  });
  return bytes;
}

double delta_vbyte_expected_bits(double density, std::size_t) {
  const auto beyond = [&](double gap) { return density < 1 ? std::exp(gap * std::log1p(-density)) : 0.0; };
  return 2 + 8 * (1 + beyond(0xFF) + beyond(0xFFFF) + beyond(0xFFFFFF));
}

Buffer encode_delta_vbyte(const AnyStream& stream) {
  Buffer buffer = Buffer::allocate(most_bytes(stream));
  PoolVector<std::uint32_t> gaps(std::min<std::uint64_t>(kBlock, stream.nnz()));
  std::byte* out = buffer.mutable_data();
  visit_index_type(stream.dimension(), [&]<class I>() {
    for_each_block<I>(stream, [&](std::span<const I> indices, I previous) {
      const std::size_t wide = gaps_of(indices, previous, gaps.data());
      out = stream_vbyte_encode({gaps.data(), indices.size()}, out);
      if (wide > 0) out = append_wide(indices, previous, out);
    });
  });
  return buffer.slice(0, static_cast<std::size_t>(out - buffer.data()));
}

Buffer decode_delta_vbyte(std::span<const std::byte> bytes, Range range, std::uint64_t dimension, std::uint64_t nnz,
                          Buffer landing) {
  if (nnz > bytes.size()) {
    reject_indices("delta_vbyte", fmt::format("{} bytes do not hold {} indices", bytes.size(), nnz));
  }
  Reader reader(bytes);
  visit_index_type(dimension,
                   [&]<class I>() { decode_blocks(reader, range, std::span<I>(place_indices<I>(landing, nnz), nnz)); });
  reader.expect_end();
  return landing;
}

}  // namespace tulle
