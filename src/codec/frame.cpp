#include "tulle/codec/frame.hpp"

#include <fmt/format.h>

#include "base/little_endian.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

// Offsets of the head's fields, as in docs/wire_format.md.
constexpr std::size_t kMagicAt = 0, kVersionAt = 2, kLayoutAt = 3, kTypeAt = 4, kIndexCodingAt = 5, kValueCodingAt = 6,
                      kOpAt = 7, kSequenceAt = 8, kReservedAt = 12, kDimensionAt = 16, kBeginAt = 24, kEndAt = 32,
                      kNnzAt = 40, kContributedAt = 48;
constexpr std::uint16_t kMagic = 0x4654;  // "TF"
constexpr std::uint8_t kVersion = 1;

[[noreturn]] void reject(std::string_view field, const std::string& why) {
  throw Error(ErrorKind::bad_message, fmt::format("frame field '{}': {}", field, why));
}

template <class T>
void expect_equal(std::string_view field, T got, T expected) {
  if (got != expected) reject(field, fmt::format("is {}, expected {}", got, expected));
}

IndexCoding index_coding_of(const AnyStream& stream) {
  return stream.is_dense() ? IndexCoding::none : IndexCoding::raw;
}

Buffer encode_head(const AnyStream& stream, const FrameLabel& label) {
  Buffer buffer = Buffer::allocate(kFrameHeadBytes);
  const auto bytes = buffer.as_mutable<std::byte>();
  store_at(bytes, kMagicAt, kMagic);
  store_at(bytes, kVersionAt, kVersion);
  store_at(bytes, kLayoutAt, stream.layout());
  store_at(bytes, kTypeAt, stream.type());
  store_at(bytes, kIndexCodingAt, index_coding_of(stream));
  store_at(bytes, kValueCodingAt, ValueCoding::raw);
  store_at(bytes, kOpAt, label.op);
  store_at(bytes, kSequenceAt, label.sequence);
  store_at(bytes, kReservedAt, std::uint32_t{0});
  store_at(bytes, kDimensionAt, stream.dimension());
  store_at(bytes, kBeginAt, stream.range().begin);
  store_at(bytes, kEndAt, stream.range().end);
  store_at(bytes, kNnzAt, stream.nnz());
  store_at(bytes, kContributedAt, label.contributed);
  return buffer;
}

void validate_enumerations(const FrameHead& head) {
  if (head.layout != Layout::sparse && head.layout != Layout::dense) {
    reject("layout", fmt::format("{} is none of 1 (sparse), 2 (dense)", static_cast<int>(head.layout)));
  }
  if (!is_valid(head.type)) reject("type", fmt::format("{} is no value type", static_cast<int>(head.type)));
  if (head.op < OpCode::sum || head.op > OpCode::user) {
    reject("op", fmt::format("{} is no operation", static_cast<int>(head.op)));
  }
  const IndexCoding expected = head.layout == Layout::sparse ? IndexCoding::raw : IndexCoding::none;
  expect_equal("index_coding", static_cast<int>(head.index_coding), static_cast<int>(expected));
  expect_equal("value_coding", static_cast<int>(head.value_coding), static_cast<int>(ValueCoding::raw));
}

void validate_sizes(const FrameHead& head) {
  if (head.range.begin > head.range.end || head.range.end > head.dimension) {
    reject("range", fmt::format("[{}, {}) is not inside [0, {})", head.range.begin, head.range.end, head.dimension));
  }
  if (head.nnz > head.range.size()) {
    reject("nnz", fmt::format("{} non-zeros do not fit in a range of {}", head.nnz, head.range.size()));
  }
  if (head.layout == Layout::dense) expect_equal("nnz", head.nnz, head.range.size());
}

void validate_expected(const FrameHead& head, const FrameExpectation& expectation) {
  if (head.type != expectation.type) {
    reject("type", fmt::format("is {}, expected {}", to_string(head.type), to_string(expectation.type)));
  }
  expect_equal("op", static_cast<int>(head.op), static_cast<int>(expectation.op));
  expect_equal("sequence", head.sequence, expectation.sequence);
  expect_equal("dimension", head.dimension, expectation.dimension);
}

// Division rather than multiplication, so that a hostile count cannot overflow.
void validate_array(std::string_view field, const Buffer& array, std::uint64_t count, std::size_t width) {
  if (array.size() % width != 0 || array.size() / width != count) {
    reject(field, fmt::format("{} bytes are not {} items of {} bytes", array.size(), count, width));
  }
}

AnyStream decode_body(const FrameHead& head, std::span<const Buffer> body) {
  const Buffer& values = body.back();
  validate_array("values", values, head.nnz, size_of(head.type));
  const bool phantom = values.is_phantom() && head.nnz > 0;
  if (phantom) return AnyStream::phantom(head.type, head.dimension, head.range, head.layout, head.nnz);
  if (head.layout == Layout::dense) return AnyStream::dense(head.type, head.dimension, head.range, values);
  validate_array("indices", body.front(), head.nnz, index_bytes(head.dimension));
  AnyStream stream = AnyStream::sparse(head.type, head.dimension, head.range, body.front(), values);
  try {
    stream.validate();
  } catch (const Error& error) {
    reject("indices", error.what());
  }
  return stream;
}

}  // namespace

std::uint64_t encode_frame(const AnyStream& stream, const FrameLabel& label, Segments& segments) {
  segments.push_back(encode_head(stream, label));
  if (!stream.is_dense()) segments.push_back(stream.indices_buffer().to_owned());
  segments.push_back(stream.values_buffer().to_owned());
  return stream.bytes();
}

FrameHead decode_frame_head(std::span<const std::byte> bytes) {
  if (bytes.size() != kFrameHeadBytes) {
    reject("head", fmt::format("is {} bytes long, expected {}", bytes.size(), kFrameHeadBytes));
  }
  expect_equal("magic", load_at<std::uint16_t>(bytes, kMagicAt), kMagic);
  expect_equal("version", load_at<std::uint8_t>(bytes, kVersionAt), kVersion);
  expect_equal("reserved", load_at<std::uint32_t>(bytes, kReservedAt), std::uint32_t{0});
  FrameHead head;
  head.layout = load_at<Layout>(bytes, kLayoutAt);
  head.type = load_at<ValueType>(bytes, kTypeAt);
  head.index_coding = load_at<IndexCoding>(bytes, kIndexCodingAt);
  head.value_coding = load_at<ValueCoding>(bytes, kValueCodingAt);
  head.op = load_at<OpCode>(bytes, kOpAt);
  head.sequence = load_at<std::uint32_t>(bytes, kSequenceAt);
  head.dimension = load_at<std::uint64_t>(bytes, kDimensionAt);
  head.range = {load_at<std::uint64_t>(bytes, kBeginAt), load_at<std::uint64_t>(bytes, kEndAt)};
  head.nnz = load_at<std::uint64_t>(bytes, kNnzAt);
  head.contributed = load_at<std::uint64_t>(bytes, kContributedAt);
  validate_enumerations(head);
  validate_sizes(head);
  return head;
}

DecodedFrame decode_frame(std::span<const Buffer>& segments, const FrameExpectation& expectation) {
  if (segments.empty()) reject("head", "is missing: the message ends before the frame");
  const FrameHead head = decode_frame_head(segments.front().bytes());
  validate_expected(head, expectation);
  if (segments.size() < head.segment_count()) {
    reject("segments", fmt::format("{} of {} arrived", segments.size(), head.segment_count()));
  }
  DecodedFrame frame{head, decode_body(head, segments.subspan(1, head.segment_count() - 1))};
  segments = segments.subspan(head.segment_count());
  return frame;
}

}  // namespace tulle
