#include "tulle/codec/frame.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "stream/synthetic.hpp"
#include "tulle/base/error.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/codec/registry.hpp"

namespace tulle {
namespace {

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(byte));
    text += digits;
  }
  return text;
}

constexpr FrameLabel kLabel{OpCode::sum, 7, 9};
FrameExpectation expectation_of(const AnyStream& stream) {
  return {stream.type(), kLabel.op, kLabel.sequence, stream.dimension()};
}

Stream<float> example() {
  const std::uint32_t indices[] = {1, 258};
  const float values[] = {1.0f, -2.0f};
  return Stream<float>::from_sorted<std::uint32_t>(1000, indices, values);
}

TEST(Frame, of_a_sparse_stream_has_the_documented_bytes) {
  Segments segments;
  EXPECT_EQ(encode_frame(example(), kLabel, {}, segments), 16u);
  ASSERT_EQ(segments.size(), 3u);
  EXPECT_EQ(hex(segments[0].bytes()),
            "5446"
            "02"
            "01"  // magic "TF", version, layout sparse
            "01"
            "01"
            "01"
            "01"                  // type f32, indices raw, values raw, op sum
            "0700000000000000"    // sequence
            "e803000000000000"    // N = 1000
            "0000000000000000"    // range begin
            "e803000000000000"    // range end
            "0200000000000000"    // nnz
            "0900000000000000");  // contributed
  EXPECT_EQ(hex(segments[1].bytes()),
            "01000000"
            "02010000");
  EXPECT_EQ(hex(segments[2].bytes()),
            "0000803f"
            "000000c0");
}

TEST(Frame, of_a_dense_stream_has_the_documented_bytes) {
  const std::int64_t values[] = {-1, 2};
  Segments segments;
  encode_frame(Stream<std::int64_t>::dense(values), kLabel, {}, segments);
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_EQ(hex(segments[0].bytes()),
            "5446"
            "02"
            "02"
            "06"
            "00"
            "01"
            "01"
            "07000000"
            "00000000"
            "0200000000000000"
            "0000000000000000"
            "0200000000000000"
            "0200000000000000"
            "0900000000000000");
  EXPECT_EQ(hex(segments[1].bytes()),
            "ffffffffffffffff"
            "0200000000000000");
}

TEST(Frame, with_64_bit_indices_has_eight_bytes_an_index) {
  const std::uint64_t indices[] = {(std::uint64_t{1} << 32) + 1};
  const float values[] = {1.0f};
  Segments segments;
  encode_frame(Stream<float>::from_sorted<std::uint64_t>(std::uint64_t{1} << 32 | 5, indices, values), kLabel, {},
               segments);
  EXPECT_EQ(hex(segments[1].bytes()), "0100000001000000");
}

TEST(Frame, comes_back_as_it_was_in_every_type_and_layout) {
  for (const ValueType type : kAllValueTypes) {
    for (const std::uint64_t nnz : {0u, 1u, 50u, 100u}) {
      const AnyStream stream = synthetic_stream({.type = type, .dimension = 100, .nnz = nnz});
      Segments segments;
      encode_frame(stream, kLabel, {}, segments);
      std::span<const Buffer> rest = segments;
      const DecodedFrame frame = decode_frame(rest, expectation_of(stream));
      EXPECT_TRUE(frame.stream == stream);
      EXPECT_EQ(frame.head.contributed, 9u);
      EXPECT_TRUE(rest.empty());
    }
  }
}

TEST(Frame, comes_back_as_it_was_in_every_index_coding) {
  for (const IndexCodec& row : index_codecs()) {
    for (const std::uint64_t nnz : {0u, 1u, 50u, 100u}) {
      SCOPED_TRACE(::testing::Message() << row.name << ", nnz = " << nnz);
      const AnyStream stream = synthetic_stream({.dimension = 100, .nnz = nnz});
      if (stream.is_dense()) continue;
      Segments segments;
      const std::uint64_t bytes = encode_frame(stream, kLabel, {.indices = row.coding}, segments);
      EXPECT_EQ(bytes, segments[1].size() + segments[2].size());
      std::span<const Buffer> rest = segments;
      const DecodedFrame frame = decode_frame(rest, expectation_of(stream));
      EXPECT_TRUE(frame.stream == stream);
      EXPECT_EQ(frame.data_bytes, bytes);
    }
  }
}

TEST(Frame, with_coded_values_gives_what_the_coding_gives) {
  const AnyStream stream = synthetic_stream({.dimension = 1000, .nnz = 300, .values = SyntheticValues::gaussian_like});
  const FrameCodings codings{
      .indices = IndexCoding::rice, .values = {.coding = ValueCoding::qsgd}, .rounding = {.seed = 3}};
  Segments segments;
  encode_frame(stream, kLabel, codings, segments);
  std::span<const Buffer> rest = segments;
  const AnyStream decoded = decode_frame(rest, expectation_of(stream)).stream;
  const Buffer bytes = encode_values(codings.values, ValueType::f32, stream.values_buffer(), codings.rounding);
  const Buffer expected = decode_values(ValueCoding::qsgd, ValueType::f32, bytes.bytes(), stream.nnz());
  EXPECT_TRUE(std::ranges::equal(decoded.values_buffer().bytes(), expected.bytes()));
  EXPECT_TRUE(std::ranges::equal(decoded.indices_buffer().bytes(), stream.indices_buffer().bytes()));
}

TEST(Frame, of_a_phantom_has_the_size_that_a_stream_would_have) {
  const AnyStream real = synthetic_stream({.dimension = 1u << 20, .nnz = 10000});
  const AnyStream phantom = AnyStream::phantom(ValueType::f32, 1u << 20, {0, 1u << 20}, Layout::sparse, 10000);
  for (const IndexCodec& row : index_codecs()) {
    Segments of_real, of_phantom;
    const auto expected = static_cast<double>(encode_frame(real, kLabel, {.indices = row.coding}, of_real));
    const auto bytes = static_cast<double>(encode_frame(phantom, kLabel, {.indices = row.coding}, of_phantom));
    EXPECT_NEAR(bytes, expected, 0.02 * expected) << row.name;
    std::span<const Buffer> rest = of_phantom;
    EXPECT_TRUE(decode_frame(rest, expectation_of(phantom)).stream.is_phantom());
  }
}

TEST(Frame, of_borrowed_memory_is_copied_so_that_it_outlives_its_send) {
  float values[] = {1.0f, 2.0f};
  Segments segments;
  encode_frame(Stream<float>::borrow_dense(values), kLabel, {}, segments);
  values[0] = 99.0f;
  EXPECT_EQ(segments[1].as<float>()[0], 1.0f);
}

void expect_rejected(const Segments& segments, std::string_view field) {
  std::span<const Buffer> rest = segments;
  try {
    decode_frame(rest, expectation_of(example()));
    FAIL() << "accepted a frame with a bad " << field;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_message);
    EXPECT_NE(std::string(error.what()).find(field), std::string::npos) << error.what();
  }
}

Segments example_segments() {
  Segments segments;
  encode_frame(example(), kLabel, {}, segments);
  return segments;
}

Segments with_byte(std::size_t segment, std::size_t at, unsigned value) {
  Segments segments = example_segments();
  Buffer changed = Buffer::copy_of(segments[segment].bytes());
  changed.mutable_data()[at] = static_cast<std::byte>(value);
  segments[segment] = changed;
  return segments;
}

TEST(Frame, with_a_bad_field_is_rejected_and_the_field_named) {
  expect_rejected(with_byte(0, 0, 0), "magic");
  expect_rejected(with_byte(0, 2, 1), "version");
  expect_rejected(with_byte(0, 3, 3), "layout");
  expect_rejected(with_byte(0, 3, 2), "index_coding");
  expect_rejected(with_byte(0, 4, 9), "type");
  expect_rejected(with_byte(0, 4, 2), "type");
  expect_rejected(with_byte(0, 5, 0), "index_coding");
  expect_rejected(with_byte(0, 5, 99), "index_coding");
  expect_rejected(with_byte(0, 6, 99), "value_coding");
  expect_rejected(with_byte(0, 7, 2), "op");
  expect_rejected(with_byte(0, 8, 8), "sequence");
  expect_rejected(with_byte(0, 16, 0xe9), "dimension");
  expect_rejected(with_byte(0, 39, 0xff), "range");
  expect_rejected(with_byte(0, 47, 0xff), "nnz");
  expect_rejected(with_byte(0, 40, 3), "values");
}

// What an announcement says must fit as well as what comes after it.
TEST(FrameHead, that_is_not_what_is_expected_is_rejected) {
  const auto head_of = [](const Segments& segments) { return segments[0].bytes(); };
  EXPECT_EQ(decode_frame_head(head_of(example_segments()), expectation_of(example())).nnz, example().nnz());
  const auto expect_bad = [&](const Segments& segments, std::string_view field) {
    try {
      decode_frame_head(head_of(segments), expectation_of(example()));
      FAIL() << "accepted a bad " << field;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_message);
      EXPECT_NE(std::string(error.what()).find(field), std::string::npos) << error.what();
    }
  };
  expect_bad(with_byte(0, 4, 2), "type");
  expect_bad(with_byte(0, 7, 2), "op");
  expect_bad(with_byte(0, 8, 8), "sequence");
  expect_bad(with_byte(0, 16, 0xe9), "dimension");
}

TEST(Frame, with_indices_out_of_order_or_out_of_range_is_rejected) {
  expect_rejected(with_byte(1, 1, 2), "indices");  // 513, 258
  expect_rejected(with_byte(1, 5, 9), "indices");  // 1, 2306, and N = 1000
  Segments twice = example_segments();
  Buffer same = Buffer::copy_of(twice[1].bytes());
  std::memcpy(same.mutable_data() + 4, same.data(), 4);  // 1, 1
  twice[1] = same;
  expect_rejected(twice, "indices");
}

TEST(Frame, that_is_cut_off_is_rejected) {
  Segments missing = example_segments();
  missing.pop_back();
  expect_rejected(missing, "segments");
  expect_rejected({}, "head");
  Segments short_values = example_segments();
  short_values[2] = short_values[2].slice(0, 7);
  expect_rejected(short_values, "values");
}

TEST(Frame, decoding_survives_random_bytes) {
  Philox random(42);
  for (int round = 0; round < 20000; ++round) {
    Segments segments = example_segments();
    for (Buffer& segment : segments) {
      Buffer changed = Buffer::copy_of(
          segment.bytes().first(random.below(8) == 0 ? random.below(segment.size() + 1) : segment.size()));
      if (!changed.empty()) changed.mutable_data()[random.below(changed.size())] = static_cast<std::byte>(random());
      segment = changed;
    }
    std::span<const Buffer> rest = segments;
    try {
      decode_frame(rest, expectation_of(example())).stream.validate();
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::bad_message) << error.what();
    }
  }
}

}  // namespace
}  // namespace tulle
