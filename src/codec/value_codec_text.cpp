// Codecs as people write them: a coding's name, and its options after a colon.
#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <string>

#include "base/did_you_mean.hpp"
#include "tulle/base/error.hpp"
#include "tulle/codec/registry.hpp"

namespace tulle {
namespace {

constexpr std::string_view kAllValues = "all";  // a bucket

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::bad_input, why); }

template <class T>
T number_of(std::string_view option, std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    refuse(fmt::format("option '{}' is '{}', expected a number", option, text));
  }
  return number;
}

bool switch_of(std::string_view option, std::string_view text) {
  if (text != "on" && text != "off") refuse(fmt::format("option '{}' is '{}', expected on or off", option, text));
  return text == "on";
}

std::uint32_t bucket_of(std::string_view text) {
  return text == kAllValues ? kWholeArray : number_of<std::uint32_t>("bucket", text);
}

ScaleNorm norm_of(std::string_view text) {
  if (text == to_string(ScaleNorm::l2)) return ScaleNorm::l2;
  if (text == to_string(ScaleNorm::max)) return ScaleNorm::max;
  refuse(fmt::format("option 'norm' is '{}', expected l2 or max", text));
}

const ValueCodecRow& row_named(std::string_view name) {
  std::string names;
  for (const ValueCodecRow& row : value_codecs()) {
    if (row.name == name) return row;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
  }
  refuse(fmt::format("'{}' is no value coding; there are {}{}", name, names, did_you_mean(name, names)));
}

const ValueCodecRow& row_of(ValueCoding coding) {
  for (const ValueCodecRow& row : value_codecs()) {
    if (row.coding == coding) return row;
  }
  refuse(fmt::format("{} is no value coding", static_cast<int>(coding)));
}

bool takes(const ValueCodecRow& row, std::string_view option) {
  std::string_view rest = row.options;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(", ");
    if (rest.substr(0, comma) == option) return true;
    rest = comma == rest.npos ? "" : rest.substr(comma + 2);
  }
  return false;
}

void set_option(ValueCodec& codec, const ValueCodecRow& row, std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::string_view option = text.substr(0, equals);
  if (equals == text.npos || !takes(row, option)) {
    refuse(fmt::format("'{}' is no option of {}; {}", text, row.name,
                       row.options.empty() ? "it has none" : fmt::format("there are {}", row.options)));
  }
  const std::string_view value = text.substr(equals + 1);
  if (option == "bits") codec.bits = number_of<int>(option, value);
  if (option == "bucket") codec.bucket = bucket_of(value);
  if (option == "norm") codec.norm = norm_of(value);
  if (option == "sigma") codec.sigma = number_of<double>(option, value);
  if (option == "s") codec.sparsity = number_of<double>(option, value);
  if (option == "zero_runs") codec.zero_runs = switch_of(option, value);
}

void validate_bits(const ValueCodec& codec) {
  const bool takes_any = codec.coding == ValueCoding::codebook;
  if (takes_any && (codec.bits < 2 || codec.bits > 8)) refuse(fmt::format("bits is {}, expected 2 to 8", codec.bits));
  if (takes_any || !takes(row_of(codec.coding), "bits")) return;
  if (codec.bits != 2 && codec.bits != 4 && codec.bits != 8) {
    refuse(fmt::format("bits is {}, expected 2, 4 or 8", codec.bits));
  }
}

}  // namespace

ValueCodec parse_value_codec(std::string_view text) {
  const std::size_t colon = text.find(':');
  const ValueCodecRow& row = row_named(text.substr(0, colon));
  ValueCodec codec{.coding = row.coding};
  std::string_view rest = colon == text.npos ? "" : text.substr(colon + 1);
  if (colon != text.npos && rest.empty()) refuse(fmt::format("'{}' ends where options should follow", text));
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    set_option(codec, row, rest.substr(0, comma));
    rest = comma == rest.npos ? "" : rest.substr(comma + 1);
  }
  validate(codec);
  return codec;
}

std::string to_string(const ValueCodec& codec) {
  const ValueCodecRow& row = row_of(codec.coding);
  std::string text;
  const auto append = [&](std::string_view option, const auto& value) {
    if (takes(row, option)) text += fmt::format("{}{}={}", text.empty() ? ":" : ",", option, value);
  };
  append("bits", codec.bits);
  append("bucket", codec.bucket == kWholeArray ? std::string(kAllValues) : fmt::to_string(codec.bucket));
  append("norm", to_string(codec.norm));
  append("sigma", codec.sigma);
  append("s", codec.sparsity);
  append("zero_runs", codec.zero_runs ? "on" : "off");
  return std::string(row.name) + text;
}

void validate(const ValueCodec& codec) {
  const ValueCodecRow& row = row_of(codec.coding);
  validate_bits(codec);
  if (takes(row, "bucket") && codec.bucket == 0) refuse("bucket is 0, expected 1 or more");
  if (takes(row, "norm") && codec.norm != ScaleNorm::l2 && codec.norm != ScaleNorm::max) {
    refuse(fmt::format("norm is {}, expected l2 or max", static_cast<int>(codec.norm)));
  }
  if (takes(row, "s") && !(codec.sparsity >= 1 && codec.sparsity < 2)) {
    refuse(fmt::format("s is {}, expected 1 or more and less than 2", codec.sparsity));
  }
  if (takes(row, "sigma") && !(codec.sigma > 0 && codec.sigma <= std::numeric_limits<double>::max())) {
    refuse(fmt::format("sigma is {}, expected a number above 0", codec.sigma));
  }
  if (codec.threads < 0) refuse(fmt::format("threads is {}, expected 0 or more", codec.threads));
}

}  // namespace tulle
