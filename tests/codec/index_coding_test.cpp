#include "tulle/codec/index_coding.hpp"

#include <set>

#include "codec/codec_model.hpp"
#include "stream/synthetic.hpp"

namespace tulle::test {
namespace {

using Indices = std::vector<std::uint32_t>;
constexpr std::uint64_t kWide = std::uint64_t{1} << 40;

AnyStream uniform_stream(std::uint64_t dimension, double density) {
  const auto nnz = static_cast<std::uint64_t>(density * static_cast<double>(dimension));
  return synthetic_stream({.dimension = dimension, .nnz = nnz});
}

// Gaps are index − previous, the first from begin − 1 = 9: 1, 2, 288. 288 = 0x0120 takes two bytes, so the lengths are
// 0, 0, 1 in two bits each from the lowest on: 0b010000.
TEST(IndexCoding, delta_vbyte_has_the_documented_bytes) {
  const AnyStream stream = stream_at<std::uint32_t>(1000, {10, 1000}, {10, 12, 300});
  EXPECT_EQ(hex(encode_indices(IndexCoding::delta_vbyte, stream).bytes()), "10 01 02 20 01");
}

// Gaps 6 and 2^32 + 5. The second does not fit 32 bits: 0 in its place, and eight bytes after the block.
TEST(IndexCoding, delta_vbyte_sends_gaps_beyond_32_bits_apart) {
  const AnyStream stream = stream_at<std::uint64_t>(kWide, {0, kWide}, {5, (std::uint64_t{1} << 32) + 10});
  EXPECT_EQ(hex(encode_indices(IndexCoding::delta_vbyte, stream).bytes()), "00 06 00 05 00 00 00 01 00 00 00");
}

// Positions 0, 7, 8 and 11 after begin: bits 0 and 7 of the first byte, 0 and 3 of the second.
TEST(IndexCoding, bitmap_has_the_documented_bytes) {
  const AnyStream stream = stream_at<std::uint32_t>(100, {8, 20}, {8, 15, 16, 19});
  EXPECT_EQ(hex(encode_indices(IndexCoding::bitmap, stream).bytes()), "81 09");
}

// Density 1/16. log(φ − 1) / log(1 − 1/16) = 7.46 = 2^2.9, so the shift is 1 + 2 = 3.
// Positions left out: 3, 8, 0, 36. Low three bits 3, 0, 0, 4: 3 + 4·2^9 = 0x803. Quotients 0, 1, 0, 4 in unary, from
// the lowest bit on: 1 01 1 00001.
TEST(IndexCoding, rice_has_the_documented_bytes) {
  const AnyStream stream = stream_at<std::uint32_t>(64, {0, 64}, {3, 12, 13, 50});
  EXPECT_EQ(hex(encode_indices(IndexCoding::rice, stream).bytes()), "03 03 08 0d 01");
}

void check_round_trip(const AnyStream& stream) {
  std::uint64_t fewest = stream.indices_buffer().size();
  for (const IndexCodec& row : index_codecs()) {
    const Buffer bytes = encode_indices(row.coding, stream);
    EXPECT_EQ(bytes.size(), encoded_index_bytes(row.coding, stream)) << row.name;
    const Buffer indices = decode_indices(row.coding, bytes.bytes(), stream.range(), stream.dimension(), stream.nnz());
    EXPECT_EQ(hex(indices.bytes()), hex(stream.indices_buffer().bytes())) << row.name;
    fewest = std::min<std::uint64_t>(fewest, bytes.size());
  }
  EXPECT_EQ(encoded_index_bytes(smallest_index_coding(stream), stream), fewest);
}

template <StreamIndex I>
void check_arbitrary(std::uint64_t dimension) {
  rc::check([dimension] {
    const auto begin = *rc::gen::inRange<std::uint64_t>(0, 1000);
    const auto extent = *rc::gen::inRange<std::uint64_t>(0, 3000);
    const auto offsets = *rc::gen::container<std::set<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(0, extent + 1));
    std::vector<I> indices;
    for (const std::uint64_t offset : offsets) indices.push_back(static_cast<I>(begin + offset));
    check_round_trip(stream_at(dimension, {begin, begin + extent + 1}, indices));
  });
}

TEST(IndexCoding, every_row_gives_arbitrary_indices_back) {
  check_arbitrary<std::uint32_t>(10'000);
  check_arbitrary<std::uint64_t>(kWide);
}

TEST(IndexCoding, every_row_gives_indices_at_the_edges_back) {
  const auto last = std::uint32_t{0xFFFFFFFE};
  check_round_trip(stream_at<std::uint32_t>(0, {0, 0}, {}));
  check_round_trip(stream_at<std::uint32_t>(1, {0, 1}, {0}));
  check_round_trip(stream_at<std::uint32_t>(100, {50, 50}, {}));
  check_round_trip(stream_at<std::uint32_t>(last + 1ull, {last - 500, last + 1ull}, {last - 500, last - 1, last}));
  Indices all(1000);
  for (std::uint32_t i = 0; i < 1000; ++i) all[i] = 24 + i;
  check_round_trip(stream_at(2000, {24, 1024}, all));
}

// Too wide for a bitmap.
TEST(IndexCoding, gaps_of_any_size_come_back) {
  const std::uint64_t dimension = ~std::uint64_t{0};
  const std::vector<std::uint64_t> indices{
      0, 1, 0x100, 0x10100, 0x1010100, 0x101010100, std::uint64_t{1} << 62, dimension - 1};
  const AnyStream stream = stream_at(dimension, {0, dimension}, indices);
  for (const IndexCoding coding : {IndexCoding::raw, IndexCoding::delta_vbyte, IndexCoding::rice}) {
    const Buffer bytes = encode_indices(coding, stream);
    EXPECT_EQ(bytes.size(), encoded_index_bytes(coding, stream));
    EXPECT_EQ(vector_of<std::uint64_t>(decode_indices(coding, bytes.bytes(), stream.range(), dimension, 8)), indices);
  }
}

// Long enough for several blocks, words and vectors.
TEST(IndexCoding, long_streams_come_back_on_every_target) {
  for_each_target([] {
    for (const double density : {0.001, 0.03, 0.5}) {
      const AnyStream stream = uniform_stream(100'000, density);
      for (const IndexCodec& row : index_codecs()) {
        const Buffer bytes = encode_indices(row.coding, stream);
        const Buffer indices = decode_indices(row.coding, bytes.bytes(), stream.range(), 100'000, stream.nnz());
        EXPECT_TRUE(std::ranges::equal(indices.bytes(), stream.indices_buffer().bytes())) << row.name << density;
      }
    }
  });
}

TEST(IndexCoding, smallest_is_within_three_percent_of_the_entropy) {
  for (const double density : {0.001, 0.01, 0.1, 0.5}) {
    const AnyStream stream = uniform_stream(4'000'000, density);
    const auto nnz = static_cast<double>(stream.nnz());
    const double bits = 8.0 * static_cast<double>(encoded_index_bytes(smallest_index_coding(stream), stream)) / nnz;
    EXPECT_LE(bits, 1.03 * index_entropy_bits(4'000'000, nnz)) << density;
    EXPECT_GE(bits, 0.999 * index_entropy_bits(4'000'000, nnz)) << density;
  }
}

TEST(IndexCoding, expected_bits_are_what_uniform_positions_take) {
  for (const double density : {0.001, 0.01, 0.1, 0.5, 1.0}) {
    const AnyStream stream = uniform_stream(2'000'000, density);
    for (const IndexCodec& row : index_codecs()) {
      const double bits = 8.0 * static_cast<double>(row.bytes(stream)) / static_cast<double>(stream.nnz());
      EXPECT_NEAR(expected_index_bits(row.coding, density, 4), bits, 0.02 * bits) << row.name << ' ' << density;
    }
  }
}

// C(6, 2) = 15.
TEST(IndexCoding, entropy_counts_the_sets_of_positions) {
  EXPECT_NEAR(index_entropy_bits(6, 2), std::log2(15) / 2, 1e-12);
  EXPECT_NEAR(index_entropy_bits(1e9, 1e6), 11.41, 0.005);
  EXPECT_EQ(index_entropy_bits(6, 0), 0);
  EXPECT_NEAR(index_entropy_bits(6, 6), 0, 1e-12);
}

std::string fault(IndexCoding coding, std::initializer_list<unsigned> bytes, Range range, std::uint64_t nnz) {
  const Buffer buffer = bytes_of(bytes);
  return message_of(ErrorKind::bad_message, [&] { decode_indices(coding, buffer.bytes(), range, 1000, nnz); });
}

TEST(IndexCoding, faults_are_named) {
  const Range range{0, 20};
  EXPECT_CONTAINS(fault(IndexCoding::raw, {1, 0, 0, 0}, range, 2), "4 bytes are not 2 items");
  EXPECT_CONTAINS(fault(IndexCoding::raw, {1, 0, 0, 0, 1, 0, 0, 0}, range, 2), "position");
  EXPECT_CONTAINS(fault(IndexCoding::bitmap, {1, 0}, range, 1), "2 bytes, expected 3");
  EXPECT_CONTAINS(fault(IndexCoding::bitmap, {1, 0, 0x10}, range, 2), "beyond the last position");
  EXPECT_CONTAINS(fault(IndexCoding::bitmap, {1, 0, 0}, range, 2), "1 bits are set, expected 2");
  EXPECT_CONTAINS(fault(IndexCoding::delta_vbyte, {0, 1}, range, 3), "do not hold 3 indices");
  EXPECT_CONTAINS(fault(IndexCoding::delta_vbyte, {0x11, 1, 1}, range, 2), "padding");
  EXPECT_CONTAINS(fault(IndexCoding::delta_vbyte, {0x01, 1, 0}, range, 2), "ends inside the gaps");
  EXPECT_CONTAINS(fault(IndexCoding::delta_vbyte, {0, 1, 0}, range, 2), "do not increase");
  EXPECT_CONTAINS(fault(IndexCoding::delta_vbyte, {0, 1, 20}, range, 2), "do not increase within");
  EXPECT_CONTAINS(fault(IndexCoding::delta_vbyte, {0, 1, 1, 7}, range, 2), "1 bytes too many");
  EXPECT_CONTAINS(fault(IndexCoding::rice, {}, range, 0), "shift is missing");
  EXPECT_CONTAINS(fault(IndexCoding::rice, {57, 0}, range, 1), "a shift of 57");
  EXPECT_CONTAINS(fault(IndexCoding::rice, {8, 0}, range, 2), "do not hold 2 indices");
  EXPECT_CONTAINS(fault(IndexCoding::rice, {2, 0x14, 3}, range, 2), "padding");
  EXPECT_CONTAINS(fault(IndexCoding::rice, {2, 0, 3, 0}, range, 2), "last byte is empty");
  EXPECT_CONTAINS(fault(IndexCoding::rice, {2, 0, 7}, range, 2), "3 indices, expected 2");
  EXPECT_CONTAINS(fault(IndexCoding::rice, {2, 0, 0x80, 1}, range, 2), "larger than the range");
  EXPECT_CONTAINS(fault(IndexCoding::rice, {5, 20}, range, 1), "0 indices, expected 1");
  EXPECT_CONTAINS(fault(IndexCoding::rice, {5, 20, 1}, range, 1), "beyond 20");
  EXPECT_CONTAINS(fault(IndexCoding::rice, {0, 1}, range, 21), "21 indices do not fit in 20 positions");
  EXPECT_CONTAINS(fault(IndexCoding{9}, {0}, range, 1), "9 is no index coding");
}

// Counts that the bytes cannot hold are refused before memory is taken.
TEST(IndexCoding, huge_counts_are_refused) {
  const Buffer bytes = bytes_of({0, 1});
  const std::uint64_t huge = std::uint64_t{1} << 50;
  for (const IndexCodec& row : index_codecs()) {
    message_of(ErrorKind::bad_message, [&] { decode_indices(row.coding, bytes.bytes(), {0, ~0ull}, ~0ull, huge); });
  }
}

}  // namespace
}  // namespace tulle::test
