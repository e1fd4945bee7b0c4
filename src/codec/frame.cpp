#include "tulle/codec/frame.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/little_endian.hpp"
#include "codec/recode.hpp"
#include "tulle/base/error.hpp"
#include "tulle/codec/registry.hpp"

namespace tulle {
namespace {

// Offsets of the head's fields, as in docs/wire_format.md.
constexpr std::size_t kMagicAt = 0, kVersionAt = 2, kLayoutAt = 3, kTypeAt = 4, kIndexCodingAt = 5, kValueCodingAt = 6,
                      kOpAt = 7, kSequenceAt = 8, kDimensionAt = 16, kBeginAt = 24, kEndAt = 32, kNnzAt = 40,
                      kContributedAt = 48;
constexpr std::uint16_t kMagic = 0x4654;  // "TF"
constexpr std::uint8_t kVersion = 2;

[[noreturn]] void reject(std::string_view field, const std::string& why) {
  throw Error(ErrorKind::bad_message, fmt::format("frame field '{}': {}", field, why));
}

template <class T>
void expect_equal(std::string_view field, T got, T expected) {
  if (got != expected) reject(field, fmt::format("is {}, expected {}", got, expected));
}

FrameHead head_of(const AnyStream& stream, const FrameLabel& label, const FrameCodings& codings) {
  return {.layout = stream.layout(),
          .type = stream.type(),
          .index_coding = stream.is_dense() ? IndexCoding::none : codings.indices,
          .value_coding = codings.values.coding,
          .op = label.op,
          .sequence = label.sequence,
          .dimension = stream.dimension(),
          .range = stream.range(),
          .nnz = stream.nnz(),
          .contributed = label.contributed};
}

bool is_coding_of(IndexCoding coding, Layout layout) {
  if (layout == Layout::dense) return coding == IndexCoding::none;
  return std::ranges::any_of(index_codecs(), [&](const IndexCodec& row) { return row.coding == coding; });
}

bool is_coding_of(ValueCoding coding, ValueType type) {
  if (is_integer(type)) return coding == ValueCoding::raw;
  return std::ranges::any_of(value_codecs(), [&](const ValueCodecRow& row) { return row.coding == coding; });
}

void validate_enumerations(const FrameHead& head) {
  if (head.layout != Layout::sparse && head.layout != Layout::dense) {
    reject("layout", fmt::format("{} is none of 1 (sparse), 2 (dense)", static_cast<int>(head.layout)));
  }
  if (!is_valid(head.type)) reject("type", fmt::format("{} is no value type", static_cast<int>(head.type)));
  if (head.op < OpCode::sum || head.op > OpCode::user) {
    reject("op", fmt::format("{} is no operation", static_cast<int>(head.op)));
  }
  if (!is_coding_of(head.index_coding, head.layout)) {
    reject("index_coding", fmt::format("{} is no coding of a {} stream", static_cast<int>(head.index_coding),
                                       head.layout == Layout::dense ? "dense" : "sparse"));
  }
  if (!is_coding_of(head.value_coding, head.type)) {
    reject("value_coding",
           fmt::format("{} is no coding of {}", static_cast<int>(head.value_coding), to_string(head.type)));
  }
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

Buffer encode_indices_of(const AnyStream& stream, IndexCoding coding) {
  if (coding == IndexCoding::raw) return stream.indices_buffer().to_owned();
  if (!stream.is_phantom()) return encode_indices(coding, stream);
  const double bits = expected_index_bits(coding, stream.density(), stream.index_width());
  return Buffer::phantom(static_cast<std::size_t>(bits * static_cast<double>(stream.nnz()) / 8));
}

Buffer encode_values_of(const AnyStream& stream, const FrameCodings& codings) {
  if (codings.values.coding == ValueCoding::raw) return stream.values_buffer().to_owned();
  if (!stream.is_phantom()) {
    return encode_values(codings.values, stream.type(), stream.values_buffer(), codings.rounding);
  }
  return Buffer::phantom(encoded_value_bytes(codings.values, stream.type(), stream.nnz()));
}

Buffer decode_values_of(const FrameHead& head, const Buffer& values, const Buffer& landing, int threads) {
  if (head.value_coding != ValueCoding::raw) {
    return decode_values(head.value_coding, head.type, values.bytes(), head.nnz, landing, threads);
  }
  validate_array("values", values, head.nnz, size_of(head.type));
  return values;
}

// What a decoder of indices promises, a sender of raw ones may not have kept.
AnyStream decode_raw_indices(const FrameHead& head, const Buffer& indices, Buffer values) {
  validate_array("indices", indices, head.nnz, index_bytes(head.dimension));
  AnyStream stream = AnyStream::sparse(head.type, head.dimension, head.range, indices, std::move(values));
  try {
    stream.validate();
  } catch (const Error& error) {
    reject("indices", error.what());
  }
  return stream;
}

// Itself, or its copy in `landing`.
Buffer land(Buffer array, const Buffer& landing) {
  if (landing.empty() || array.data() == landing.data()) return array;
  Buffer landed = landing;
  std::memcpy(landed.data_for_landing(), array.data(), array.size());
  return landed;
}

AnyStream land_pairs(const FrameHead& head, const AnyStream& stream, const PairLanding& landing) {
  return AnyStream::sparse(head.type, head.dimension, head.range, land(stream.indices_buffer(), landing.indices),
                           land(stream.values_buffer(), landing.values));
}

AnyStream decode_body(const FrameHead& head, std::span<const Buffer> body, const PairLanding& landing, int threads) {
  const bool phantom = body.back().is_phantom() && head.nnz > 0;
  if (phantom) return AnyStream::phantom(head.type, head.dimension, head.range, head.layout, head.nnz);
  Buffer values = decode_values_of(head, body.back(), landing.values, threads);
  if (head.layout == Layout::dense) return AnyStream::dense(head.type, head.dimension, head.range, std::move(values));
  if (head.index_coding == IndexCoding::raw) {
    return land_pairs(head, decode_raw_indices(head, body.front(), std::move(values)), landing);
  }
  Buffer indices =
      decode_indices(head.index_coding, body.front().bytes(), head.range, head.dimension, head.nnz, landing.indices);
  return AnyStream::sparse(head.type, head.dimension, head.range, std::move(indices),
                           land(std::move(values), landing.values));
}

std::uint64_t bytes_of(std::span<const Buffer> arrays) {
  std::uint64_t bytes = 0;
  for (const Buffer& array : arrays) bytes += array.size();
  return bytes;
}

}  // namespace

Buffer encode_frame_head(const FrameHead& head) {
  Buffer buffer = Buffer::allocate(kFrameHeadBytes);
  const auto bytes = buffer.as_mutable<std::byte>();
  store_at(bytes, kMagicAt, kMagic);
  store_at(bytes, kVersionAt, kVersion);
  store_at(bytes, kLayoutAt, head.layout);
  store_at(bytes, kTypeAt, head.type);
  store_at(bytes, kIndexCodingAt, head.index_coding);
  store_at(bytes, kValueCodingAt, head.value_coding);
  store_at(bytes, kOpAt, head.op);
  store_at(bytes, kSequenceAt, head.sequence);
  store_at(bytes, kDimensionAt, head.dimension);
  store_at(bytes, kBeginAt, head.range.begin);
  store_at(bytes, kEndAt, head.range.end);
  store_at(bytes, kNnzAt, head.nnz);
  store_at(bytes, kContributedAt, head.contributed);
  return buffer;
}

std::uint64_t encode_frame(const AnyStream& stream, const FrameLabel& label, const FrameCodings& codings,
                           Segments& segments) {
  const std::size_t first = segments.size();
  segments.push_back(encode_frame_head(head_of(stream, label, codings)));
  if (!stream.is_dense()) segments.push_back(encode_indices_of(stream, codings.indices));
  segments.push_back(encode_values_of(stream, codings));
  return bytes_of(std::span(segments).subspan(first + 1));
}

AnyStream recode_frame(const AnyStream& stream, const FrameLabel& label, const FrameCodings& codings, Buffer landing,
                       Segments& segments, Scales scales) {
  if (stream.is_phantom()) {
    encode_frame(stream, label, codings, segments);
    return stream;
  }
  segments.push_back(encode_frame_head(head_of(stream, label, codings)));
  if (!stream.is_dense()) segments.push_back(encode_indices_of(stream, codings.indices));
  const ValueType type = stream.type();
  RecodedValues values =
      recode_values(codings.values, type, stream.values_buffer(), codings.rounding, std::move(landing), scales);
  segments.push_back(std::move(values.bytes));
  if (stream.is_dense()) return AnyStream::dense(type, stream.dimension(), stream.range(), std::move(values.decoded));
  return AnyStream::sparse(type, stream.dimension(), stream.range(), stream.indices_buffer().to_owned(),
                           std::move(values.decoded));
}

FrameHead decode_frame_head(std::span<const std::byte> bytes) {
  if (bytes.size() != kFrameHeadBytes) {
    reject("head", fmt::format("is {} bytes long, expected {}", bytes.size(), kFrameHeadBytes));
  }
  expect_equal("magic", load_at<std::uint16_t>(bytes, kMagicAt), kMagic);
  expect_equal("version", load_at<std::uint8_t>(bytes, kVersionAt), kVersion);
  FrameHead head;
  head.layout = load_at<Layout>(bytes, kLayoutAt);
  head.type = load_at<ValueType>(bytes, kTypeAt);
  head.index_coding = load_at<IndexCoding>(bytes, kIndexCodingAt);
  head.value_coding = load_at<ValueCoding>(bytes, kValueCodingAt);
  head.op = load_at<OpCode>(bytes, kOpAt);
  head.sequence = load_at<std::uint64_t>(bytes, kSequenceAt);
  head.dimension = load_at<std::uint64_t>(bytes, kDimensionAt);
  head.range = {load_at<std::uint64_t>(bytes, kBeginAt), load_at<std::uint64_t>(bytes, kEndAt)};
  head.nnz = load_at<std::uint64_t>(bytes, kNnzAt);
  head.contributed = load_at<std::uint64_t>(bytes, kContributedAt);
  validate_enumerations(head);
  validate_sizes(head);
  return head;
}

FrameHead decode_frame_head(std::span<const std::byte> bytes, const FrameExpectation& expectation) {
  const FrameHead head = decode_frame_head(bytes);
  validate_expected(head, expectation);
  return head;
}

DecodedFrame decode_frame(std::span<const Buffer>& segments, const FrameExpectation& expectation,
                          const PairLanding& landing) {
  if (segments.empty()) reject("head", "is missing: the message ends before the frame");
  const FrameHead head = decode_frame_head(segments.front().bytes(), expectation);
  if (segments.size() < head.segment_count()) {
    reject("segments", fmt::format("{} of {} arrived", segments.size(), head.segment_count()));
  }
  const std::span<const Buffer> body = segments.subspan(1, head.segment_count() - 1);
  DecodedFrame frame{head, decode_body(head, body, landing, expectation.threads), bytes_of(body)};
  segments = segments.subspan(head.segment_count());
  return frame;
}

}  // namespace tulle
