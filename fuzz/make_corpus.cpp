// Writes well-formed inputs for every fuzzer, made by the encoders: make_corpus <directory>.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "fuzz/fuzz.hpp"
#include "stream/synthetic.hpp"
#include "tulle/codec/frame.hpp"
#include "tulle/codec/registry.hpp"
#include "tulle/comm/message.hpp"

namespace tulle::fuzz {
namespace {

class Seed {
 public:
  template <class T>
  Seed& put(T number) {
    return put(std::as_bytes(std::span(&number, 1)));
  }
  Seed& put(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  void write(const std::filesystem::path& directory, std::string_view name) const {
    std::filesystem::create_directories(directory);
    std::ofstream file(directory / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes_.data()), static_cast<std::streamsize>(bytes_.size()));
  }

 private:
  Bytes bytes_;
};

AnyStream stream_of(std::uint64_t nnz) { return synthetic_stream({.dimension = 300, .nnz = nnz}); }

void write_indices(const std::filesystem::path& root, std::uint64_t nnz) {
  const AnyStream stream = stream_of(nnz);
  for (const IndexCodec& row : index_codecs()) {
    Seed()
        .put(std::uint16_t{0})
        .put(std::uint16_t{300})
        .put(static_cast<std::uint16_t>(nnz))
        .put(std::uint8_t{0})
        .put(encode_indices(row.coding, stream).bytes())
        .write(root / fmt::format("{}_indices", row.name), std::to_string(nnz));
  }
}

void write_values(const std::filesystem::path& root, std::uint64_t count) {
  Buffer values = Buffer::allocate(count * sizeof(float));
  for (std::uint64_t i = 0; i < count; ++i) values.as_mutable<float>()[i] = i % 7 == 0 ? static_cast<float>(i) : 0.0f;
  for (const ValueCodecRow& row : value_codecs()) {
    const ValueCodec codec{.coding = row.coding, .bucket = 16};
    Seed()
        .put(static_cast<std::uint16_t>(count))
        .put(std::uint8_t{0})
        .put(encode_values(codec, ValueType::f32, values, {}).bytes())
        .write(root / fmt::format("{}_values", row.name), std::to_string(count));
  }
}

void write_frame(const std::filesystem::path& root, const FrameCodings& codings, std::string_view name) {
  Segments segments;
  encode_frame(stream_of(20), {}, codings, segments);
  Seed()
      .put(static_cast<std::uint16_t>(segments[1].size()))
      .put(segments[0].bytes())
      .put(segments[1].bytes())
      .put(segments[2].bytes())
      .write(root / "frame", name);
}

void write_message(const std::filesystem::path& root, bool has_checksum) {
  const Buffer segment = Buffer::copy_of(std::as_bytes(std::span("eight by", 8)));
  const Buffer head = encode_message_head({.has_checksum = has_checksum, .sequence = 3}, std::span(&segment, 1));
  Seed()
      .put(static_cast<std::uint16_t>(head.size()))
      .put(head.bytes())
      .put(segment.bytes())
      .write(root / "message", has_checksum ? "checked" : "plain");
}

void write_all(const std::filesystem::path& root) {
  for (const std::uint64_t count : {1, 5, 40}) {
    write_indices(root, count);
    write_values(root, count);
  }
  for (const IndexCodec& row : index_codecs()) write_frame(root, {.indices = row.coding}, row.name);
  write_frame(root, {.indices = IndexCoding::rice, .values = parse_value_codec("qsgd")}, "rice_qsgd");
  write_frame(root, {.indices = IndexCoding::bitmap, .values = parse_value_codec("three_lc")}, "bitmap_three_lc");
  for (const bool has_checksum : {false, true}) write_message(root, has_checksum);
}

}  // namespace
}  // namespace tulle::fuzz

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  tulle::fuzz::write_all(argv[1]);
  return 0;
}
