#include "tulle/codec/value_coding.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "codec/narrow.hpp"
#include "codec/recode.hpp"
#include "codec/value_codings.hpp"
#include "stream/half_arrays.hpp"
#include "tulle/codec/registry.hpp"

namespace tulle {
namespace {

constexpr ValueCodecRow kValueCodecs[] = {
    {"raw", ValueCoding::raw, Fidelity::exact, "bytes as they lie in memory, of any type", "", "", nullptr, nullptr,
     nullptr},
    {"f32", ValueCoding::f32, Fidelity::biased, "rounded to 32 bits; exact for all types but f64", "IEEE 754", "",
     f32_bytes, encode_f32, decode_f32},
    {"f16", ValueCoding::f16, Fidelity::biased, "rounded to 16 bits with 11 of significand", "IEEE 754", "", f16_bytes,
     encode_f16, decode_f16},
    {"bf16", ValueCoding::bf16, Fidelity::biased, "rounded to 16 bits with 8 of significand", "", "", bf16_bytes,
     encode_bf16, decode_bf16},
    {"qsgd", ValueCoding::qsgd, Fidelity::unbiased, "levels of a bucket's norm, rounded stochastically",
     "QSGD (Alistarh et al. 2017); SparCML, section 6", "bits, bucket, norm", qsgd_bytes, encode_qsgd, decode_qsgd},
    {"int8", ValueCoding::int8, Fidelity::biased, "255 levels of a bucket's largest magnitude, rounded to nearest",
     "3LC, Table 1", "bucket", int8_bytes, encode_int8, decode_int8},
    {"three_value_stochastic", ValueCoding::three_value_stochastic, Fidelity::unbiased,
     "-M, 0 or M at random, five to a byte", "3LC, Table 1; TernGrad (Wen et al. 2017)", "",
     three_value_stochastic_bytes, encode_three_value_stochastic, decode_three_value_stochastic},
    {"three_lc", ValueCoding::three_lc, Fidelity::biased,
     "-M, 0 or M by rounding, five to a byte, runs of zeros in one", "3LC, section 3", "s, zero_runs", three_lc_bytes,
     encode_three_lc, decode_three_lc},
    {"one_bit_mqe", ValueCoding::one_bit_mqe, Fidelity::biased, "a sign bit, and the mean of each sign in a bucket",
     "Seide et al. 2014; 3LC, Table 1", "bucket", one_bit_mqe_bytes, encode_one_bit_mqe, decode_one_bit_mqe},
    {"same_sign_mean", ValueCoding::same_sign_mean, Fidelity::biased, "values of one sign as their mean",
     "RedSync, section 5.2.3", "", same_sign_mean_bytes, encode_same_sign_mean, decode_same_sign_mean},
    {"codebook", ValueCoding::codebook, Fidelity::biased, "2^bits bins around the mean, each as the mean of its values",
     "INTELLECT-1; SparseLoCo", "bits, sigma", codebook_bytes, encode_codebook, decode_codebook},
};

const ValueCodecRow* find_row(ValueCoding coding) {
  for (const ValueCodecRow& row : kValueCodecs) {
    if (row.coding == coding) return &row;
  }
  return nullptr;
}

// The type whose values a coding carries as they are.
bool carries_as_is(ValueCoding coding, ValueType type) {
  return coding == ValueCoding::raw || (coding == ValueCoding::f32 && type == ValueType::f32) ||
         (coding == ValueCoding::f16 && type == ValueType::f16) ||
         (coding == ValueCoding::bf16 && type == ValueType::bf16);
}

template <class V>
float to_float(V value) {
  return static_cast<float>(value);
}
// What is finite stays so.
float to_float(double value) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(std::isfinite(value) ? std::clamp(value, -kLargest, kLargest) : value);
}

void widen(ValueType type, const Buffer& values, std::span<float> floats) {
  if (type == ValueType::f16) return widen_halves(values.as<Half>().data(), floats.data(), floats.size());
  visit_value_type(type, [&]<class V>() {
    const std::span<const V> source = values.as<V>();
    for (std::size_t i = 0; i < floats.size(); ++i) floats[i] = to_float(source[i]);
  });
}

// Values as f32: themselves, or converted in memory that `storage` keeps.
std::span<const float> as_floats(ValueType type, const Buffer& values, Buffer& storage) {
  if (type == ValueType::f32) return values.as<float>();
  const std::size_t count = values.size() / size_of(type);
  storage = Buffer::allocate(count * sizeof(float));
  widen(type, values, storage.as_mutable<float>());
  return storage.as<float>();
}

void narrow_to(ValueType type, std::span<const float> floats, std::byte* values) {
  if (type == ValueType::f16) return narrow(floats.data(), reinterpret_cast<Half*>(values), floats.size());
  if (type == ValueType::bf16) return narrow(floats.data(), reinterpret_cast<Bfloat16*>(values), floats.size());
  visit_value_type(type, [&]<class V>() {
    V* const out = reinterpret_cast<V*>(values);
    for (std::size_t i = 0; i < floats.size(); ++i) out[i] = static_cast<V>(floats[i]);
  });
}

Buffer landing_of(std::uint64_t bytes, Buffer landing) {
  return landing.size() == bytes && !landing.is_phantom() ? std::move(landing) : Buffer::allocate(bytes);
}

Buffer copy_as_is(ValueCoding coding, ValueType type, std::span<const std::byte> bytes, std::uint64_t count,
                  Buffer landing) {
  if (bytes.size() % size_of(type) != 0 || bytes.size() / size_of(type) != count) {
    reject_values(to_string(coding),
                  fmt::format("{} bytes are not {} items of {} bytes", bytes.size(), count, size_of(type)));
  }
  Buffer values = landing_of(bytes.size(), std::move(landing));
  if (!bytes.empty() && values.data() != bytes.data())
    std::memmove(values.data_for_landing(), bytes.data(), bytes.size());
  return values;
}

void require_floats(ValueCoding coding, ValueType type) {
  if (is_integer(type)) {
    throw Error(ErrorKind::bad_input,
                fmt::format("{} cannot be coded as {}; integers travel as raw", to_string(type), to_string(coding)));
  }
}

// Null for codings of which nothing is saved: they are decoded after they were encoded.
auto recoder_of(ValueCoding coding, Scales scales) -> decltype(&recode_f16) {
  if (scales == Scales::nearest && coding == ValueCoding::qsgd) return recode_qsgd_nearest;
  if (scales == Scales::nearest && coding == ValueCoding::three_value_stochastic)
    return recode_three_value_stochastic_nearest;
  switch (coding) {
    case ValueCoding::f16: return recode_f16;
    case ValueCoding::qsgd: return recode_qsgd;
    case ValueCoding::int8: return recode_int8;
    case ValueCoding::three_value_stochastic: return recode_three_value_stochastic;
    case ValueCoding::three_lc: return recode_three_lc;
    default: return nullptr;
  }
}

// No coding takes less than a byte for 70 values, except same_sign_mean, whose count its caller has to believe.
constexpr std::uint64_t kMostValuesAByte = 70;

void validate_count(ValueCoding coding, std::span<const std::byte> bytes, std::uint64_t count) {
  if (coding != ValueCoding::same_sign_mean && count / kMostValuesAByte > bytes.size()) {
    reject_values(to_string(coding), fmt::format("{} bytes do not hold {} values", bytes.size(), count));
  }
}

}  // namespace

std::span<const ValueCodecRow> value_codecs() { return kValueCodecs; }

Fidelity fidelity_of(ValueCoding coding, ValueType type) {
  const bool fits = coding == ValueCoding::f32 && (type == ValueType::f16 || type == ValueType::bf16);
  return fits || carries_as_is(coding, type) ? Fidelity::exact : find_row(coding)->fidelity;
}

std::string_view to_string(ValueCoding coding) {
  const ValueCodecRow* const row = find_row(coding);
  return row == nullptr ? "unknown" : row->name;
}

std::string_view to_string(ScaleNorm norm) { return norm == ScaleNorm::l2 ? "l2" : "max"; }

std::string_view to_string(Fidelity fidelity) {
  switch (fidelity) {
    case Fidelity::exact: return "exact";
    case Fidelity::unbiased: return "unbiased";
    case Fidelity::biased: return "biased";
  }
  return "unknown";
}

bool keeps_zeros(ValueCoding coding) {
  return coding != ValueCoding::one_bit_mqe && coding != ValueCoding::same_sign_mean && coding != ValueCoding::codebook;
}

void throw_not_finite(std::string_view coding, std::span<const float> values) {
  std::size_t i = 0;
  while (std::isfinite(values[i])) ++i;
  throw Error(ErrorKind::bad_input, fmt::format("value {} is {}, which {} cannot carry", i, values[i], coding));
}

std::uint64_t encoded_value_bytes(const ValueCodec& codec, ValueType type, std::uint64_t count) {
  return carries_as_is(codec.coding, type) ? count * size_of(type) : find_row(codec.coding)->bytes(codec, count);
}

Buffer encode_values(const ValueCodec& codec, ValueType type, const Buffer& values, const RoundingKey& key) {
  if (carries_as_is(codec.coding, type)) return values.to_owned();
  validate(codec);
  require_floats(codec.coding, type);
  Buffer storage;
  return find_row(codec.coding)->encode(codec, as_floats(type, values, storage), key);
}

RecodedValues recode_values(const ValueCodec& codec, ValueType type, const Buffer& values, const RoundingKey& key,
                            Buffer landing, Scales scales) {
  const auto recode = recoder_of(codec.coding, scales);
  if (recode != nullptr && !carries_as_is(codec.coding, type)) {
    validate(codec);
    require_floats(codec.coding, type);
    Buffer storage, decoded = landing_of(values.size(), std::move(landing));
    const std::span<const float> floats = as_floats(type, values, storage);
    float* const target =
        reinterpret_cast<float*>(type == ValueType::f32 ? decoded.data_for_landing() : storage.data_for_landing());
    Buffer bytes = recode(codec, floats, key, target);
    if (type != ValueType::f32) narrow_to(type, floats, decoded.data_for_landing());
    return {std::move(bytes), std::move(decoded)};
  }
  Buffer bytes = encode_values(codec, type, values, key);
  Buffer decoded = decode_values(codec.coding, type, bytes.bytes(), values.size() / size_of(type), std::move(landing),
                                 codec.threads);
  return {std::move(bytes), std::move(decoded)};
}

Buffer decode_values(ValueCoding coding, ValueType type, std::span<const std::byte> bytes, std::uint64_t count,
                     Buffer landing, int threads) {
  if (carries_as_is(coding, type)) return copy_as_is(coding, type, bytes, count, std::move(landing));
  const ValueCodecRow* const row = find_row(coding);
  if (row == nullptr) reject_values("unknown", fmt::format("{} is no value coding", static_cast<int>(coding)));
  if (is_integer(type)) reject_values(row->name, fmt::format("{} cannot be coded so", to_string(type)));
  validate_count(coding, bytes, count);
  Buffer values = landing_of(count * size_of(type), std::move(landing));
  if (type == ValueType::f32) {
    row->decode(bytes, {reinterpret_cast<float*>(values.data_for_landing()), count}, threads);
    return values;
  }
  Buffer floats = Buffer::allocate(count * sizeof(float));
  row->decode(bytes, floats.as_mutable<float>(), threads);
  narrow_to(type, floats.as<float>(), values.data_for_landing());
  return values;
}

}  // namespace tulle
