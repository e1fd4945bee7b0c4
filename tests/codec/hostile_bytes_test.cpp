// Every truncation, every change of one byte and every wrong count of small messages: a bad_message, or a valid result.
#include "codec/codec_model.hpp"
#include "stream/kernels.hpp"

namespace tulle::test {
namespace {

// True where `decode` gave a result, false where it threw the one error that it may.
template <class Decode>
bool survives(Decode&& decode) {
  try {
    decode();
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_message) << error.what();
    return false;
  }
}

// In memory that ends where the message ends, so that the address sanitizer sees the first byte beyond it.
std::vector<std::byte> exact_copy(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

template <class Check>
void for_each_damage(const Buffer& message, Check&& check) {
  for (std::size_t length = 0; length < message.size(); ++length) check(exact_copy(message.bytes().first(length)));
  auto longer = exact_copy(message.bytes());
  longer.push_back(std::byte{0});
  check(longer);
  for (std::size_t place = 0; place < message.size(); ++place) {
    for (unsigned change = 1; change < 256; ++change) {
      auto damaged = exact_copy(message.bytes());
      damaged[place] ^= static_cast<std::byte>(change);
      check(damaged);
    }
  }
}

template <StreamIndex I>
void check_damaged_indices(const AnyStream& stream) {
  for (const IndexCodec& row : index_codecs()) {
    const Buffer message = encode_indices(row.coding, stream);
    const auto check = [&](const std::vector<std::byte>& bytes, std::uint64_t nnz) {
      return survives([&] {
        const Buffer indices = decode_indices(row.coding, bytes, stream.range(), stream.dimension(), nnz);
        ASSERT_EQ(indices.size(), nnz * sizeof(I)) << row.name;
        EXPECT_NO_THROW(require_sorted(indices.as<I>(), stream.dimension(), stream.range())) << row.name;
      });
    };
    for_each_damage(message, [&](const std::vector<std::byte>& bytes) { check(bytes, stream.nnz()); });
    EXPECT_FALSE(check(exact_copy(message.bytes()), stream.nnz() + 1)) << row.name;
    EXPECT_FALSE(check(exact_copy(message.bytes()), stream.nnz() - 1)) << row.name;
  }
}

TEST(HostileBytes, never_give_invalid_indices) {
  check_damaged_indices<std::uint32_t>(stream_at<std::uint32_t>(600, {100, 420}, {100, 101, 130, 390, 400, 419}));
  const std::uint64_t far = std::uint64_t{1} << 33;
  check_damaged_indices<std::uint64_t>(stream_at<std::uint64_t>(far, {far - 300, far}, {far - 280, far - 20, far - 1}));
}

TEST(HostileBytes, in_wide_gaps_never_give_invalid_indices) {
  const std::uint64_t far = std::uint64_t{1} << 40;
  const AnyStream stream = stream_at<std::uint64_t>(far, {0, far}, {3, far / 2, far - 1});
  const Buffer message = encode_indices(IndexCoding::delta_vbyte, stream);
  for_each_damage(message, [&](const std::vector<std::byte>& bytes) {
    survives([&] {
      const Buffer indices = decode_indices(IndexCoding::delta_vbyte, bytes, stream.range(), far, 3);
      EXPECT_NO_THROW(require_sorted(indices.as<std::uint64_t>(), far, stream.range()));
    });
  });
}

TEST(HostileBytes, never_give_values_that_are_not_finite) {
  for (const ValueCodec& codec : codecs_to_test()) {
    for (const std::size_t count : {1, 13}) {
      const Buffer message = encoded(codec, random_floats_for(codec.coding, count, 3));
      for_each_damage(message, [&](const std::vector<std::byte>& bytes) {
        survives([&] {
          const Buffer values = decode_values(codec.coding, ValueType::f32, bytes, count);
          ASSERT_EQ(values.size(), count * sizeof(float));
          if (codec.coding <= ValueCoding::bf16) return;
          for (const float value : values.as<float>()) EXPECT_TRUE(std::isfinite(value)) << to_string(codec);
        });
      });
    }
  }
}

TEST(HostileBytes, with_another_count_are_refused) {
  for (const ValueCodec& codec : codecs_to_test()) {
    if (codec.coding == ValueCoding::same_sign_mean) continue;
    const Buffer message = encoded(codec, random_floats_for(codec.coding, 40, 3));
    for (const std::size_t count : {0, 8, 80}) {
      EXPECT_FALSE(survives([&] { decode_values(codec.coding, ValueType::f32, message.bytes(), count); }))
          << to_string(codec) << ' ' << count;
    }
  }
}

std::string fault(ValueCoding coding, std::initializer_list<unsigned> bytes, std::uint64_t count) {
  const Buffer buffer = bytes_of(bytes);
  return message_of(ErrorKind::bad_message, [&] { decode_values(coding, ValueType::f32, buffer.bytes(), count); });
}

TEST(HostileBytes, are_named) {
  EXPECT_CONTAINS(fault(ValueCoding::raw, {0}, 1), "1 bytes are not 1 items of 4 bytes");
  EXPECT_CONTAINS(fault(ValueCoding::f16, {0}, 1), "1 bytes, expected 2");
  EXPECT_CONTAINS(fault(ValueCoding::qsgd, {4, 1, 0}, 1), "ends before its parameters");
  EXPECT_CONTAINS(fault(ValueCoding::qsgd, {3, 1, 0, 0, 8, 0, 0, 0}, 1), "bits is 3");
  EXPECT_CONTAINS(fault(ValueCoding::qsgd, {4, 3, 0, 0, 8, 0, 0, 0}, 1), "norm is 3");
  EXPECT_CONTAINS(fault(ValueCoding::qsgd, {4, 1, 1, 0, 8, 0, 0, 0}, 1), "reserved");
  EXPECT_CONTAINS(fault(ValueCoding::qsgd, {4, 1, 0, 0, 0, 0, 0, 0}, 1), "bucket is 0");
  EXPECT_CONTAINS(fault(ValueCoding::qsgd, {4, 1, 0, 0, 8, 0, 0, 0, 0, 0, 0x80, 0xbf, 7}, 1), "scale -1");
  EXPECT_CONTAINS(fault(ValueCoding::qsgd, {4, 1, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 15}, 1), "15 is no code");
  EXPECT_CONTAINS(fault(ValueCoding::qsgd, {4, 1, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0x17}, 1), "padding");
  EXPECT_CONTAINS(fault(ValueCoding::int8, {8, 0, 0, 0, 0, 0, 0, 0, 255}, 1), "255 is no code");
  EXPECT_CONTAINS(fault(ValueCoding::three_value_stochastic, {0, 0, 0, 0, 243}, 5), "243 is no byte");
  EXPECT_CONTAINS(fault(ValueCoding::three_value_stochastic, {0, 0, 0, 0, 120}, 4), "padding");
  EXPECT_CONTAINS(fault(ValueCoding::three_lc, {0, 0, 0, 0, 2, 0, 0, 0, 121}, 5), "zero_runs");
  EXPECT_CONTAINS(fault(ValueCoding::three_lc, {0, 0, 0, 0, 1, 0, 0, 0, 243}, 5), "too long");
  EXPECT_CONTAINS(fault(ValueCoding::three_lc, {0, 0, 0, 0, 1, 0, 0, 0, 121, 121}, 5), "1 bytes too many");
  EXPECT_CONTAINS(fault(ValueCoding::three_lc, {0, 0, 0, 0, 1, 0, 0, 0, 121}, 6), "ends before the last value");
  EXPECT_CONTAINS(fault(ValueCoding::three_lc, {0, 0, 0, 0, 1, 0, 0, 0, 120}, 4), "padding");
  EXPECT_CONTAINS(fault(ValueCoding::three_lc, {0, 0, 0xc0, 0x7f, 1, 0, 0, 0, 121}, 5), "scale nan");
  EXPECT_CONTAINS(fault(ValueCoding::one_bit_mqe, {0, 0, 0, 0}, 0), "bucket of 0");
  EXPECT_CONTAINS(fault(ValueCoding::one_bit_mqe, {8, 0, 0, 0, 0, 0, 0x80, 0xbf, 0, 0, 0, 0, 0}, 1), "wrong sign");
  EXPECT_CONTAINS(fault(ValueCoding::one_bit_mqe, {8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}, 1), "padding");
  EXPECT_CONTAINS(fault(ValueCoding::same_sign_mean, {0, 0, 0x80, 0x7f}, 1), "the mean is inf");
  EXPECT_CONTAINS(fault(ValueCoding::codebook, {2, 0, 0}, 1), "ends before its parameters");
  EXPECT_CONTAINS(fault(ValueCoding::codebook, {1, 0, 0, 0}, 0), "bits is 1, expected 2 to 8");
  EXPECT_CONTAINS(fault(ValueCoding::codebook, {9, 0, 0, 0}, 0), "bits is 9");
  EXPECT_CONTAINS(fault(ValueCoding::codebook, {2, 0, 1, 0}, 0), "reserved");
  EXPECT_CONTAINS(fault(ValueCoding::codebook, {2, 0, 0, 0}, 0), "4 bytes, expected 20");
  EXPECT_CONTAINS(fault(ValueCoding::codebook, {2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xc0, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0}, 0),
                  "the mean of bin 1 is nan");
  EXPECT_CONTAINS(fault(ValueCoding::codebook, {2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4}, 1),
                  "padding");
}

}  // namespace
}  // namespace tulle::test
