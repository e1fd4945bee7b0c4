#include "linear/text_chunks.hpp"

#include <algorithm>
#include <vector>

#include "base/unpacker.hpp"
#include "tulle/base/buffer.hpp"

namespace tulle::linear {
namespace {

// Small enough to stay in the cache between reading and parsing, large enough that calls do not count.
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

std::uint64_t count_lines(std::string_view text) {
  return static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
}

class PlainChunks final : public TextChunks {
 public:
  PlainChunks(ReaderPtr reader, Part part) : reader_(std::move(reader)) {
    const auto cut = [&](int index) {
      return static_cast<std::uint64_t>(static_cast<unsigned __int128>(reader_->size()) * static_cast<unsigned>(index) /
                                        static_cast<unsigned>(part.count));
    };
    position_ = first_line_from(cut(part.index));
    end_ = first_line_from(cut(part.index + 1));
  }

  std::string_view next() override {
    start_ = position_;
    for (std::size_t wanted = kChunkBytes; position_ < end_; wanted *= 2) {
      const std::string_view text = read(position_, std::min<std::uint64_t>(wanted, end_ - position_));
      const std::size_t whole = position_ + text.size() == end_ ? text.size() : text.rfind('\n') + 1;
      if (whole == 0) continue;  // a line longer than the chunk
      position_ += whole;
      return text.substr(0, whole);
    }
    return {};
  }

  std::uint64_t line_at(std::size_t offset) const override {
    std::uint64_t lines = 1;
    std::vector<char> buffer(kChunkBytes);
    for (std::uint64_t at = 0; at < start_ + offset; at += buffer.size()) {
      buffer.resize(std::min<std::uint64_t>(kChunkBytes, start_ + offset - at));
      reader_->read_at(at, std::as_writable_bytes(std::span(buffer)));
      lines += count_lines({buffer.data(), buffer.size()});
    }
    return lines;
  }

 private:
  std::string_view read(std::uint64_t offset, std::size_t bytes) {
    buffer_.resize(bytes);
    reader_->read_at(offset, std::as_writable_bytes(std::span(buffer_)));
    return {buffer_.data(), buffer_.size()};
  }

  std::uint64_t first_line_from(std::uint64_t offset) {
    if (offset == 0) return 0;
    for (std::uint64_t at = offset - 1; at < reader_->size(); at += buffer_.size()) {
      const std::string_view text = read(at, std::min<std::uint64_t>(kChunkBytes, reader_->size() - at));
      if (const std::size_t end = text.find('\n'); end != std::string_view::npos) return at + end + 1;
    }
    return reader_->size();
  }

  ReaderPtr reader_;
  std::uint64_t position_ = 0, end_ = 0, start_ = 0;
  PoolVector<char> buffer_;
};

class UnpackedChunks final : public TextChunks {
 public:
  UnpackedChunks(ReaderPtr reader, Part part) : unpacker_(std::move(reader)), part_(part) {}

  std::string_view next() override {
    for (std::string_view chunk = unpack(); !chunk.empty(); chunk = unpack()) {
      if (number_++ % part_.count == part_.index) return chunk;
    }
    return {};
  }

  std::uint64_t line_at(std::size_t offset) const override {
    return lines_before_ + 1 + count_lines({buffer_.data(), offset});
  }

 private:
  std::string_view unpack() {
    lines_before_ += count_lines({buffer_.data(), whole_});
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(whole_));
    for (whole_ = 0; whole_ == 0;) {
      const std::size_t had = buffer_.size();
      buffer_.resize(had + kChunkBytes);
      std::size_t got = 0;
      while (got < kChunkBytes) {
        const std::size_t more = unpacker_.read(buffer_.data() + had + got, kChunkBytes - got);
        if (more == 0) break;
        got += more;
      }
      buffer_.resize(had + got);
      const bool is_last = got < kChunkBytes;
      whole_ = is_last ? buffer_.size() : std::string_view(buffer_.data(), buffer_.size()).rfind('\n') + 1;
      if (is_last) break;
    }
    return {buffer_.data(), whole_};
  }

  Unpacker unpacker_;
  Part part_;
  int number_ = 0;
  PoolVector<char> buffer_;
  std::size_t whole_ = 0;
  std::uint64_t lines_before_ = 0;
};

}  // namespace

std::unique_ptr<TextChunks> open_text(ReaderPtr reader, Part part) {
  if (is_compressed(*reader)) return std::make_unique<UnpackedChunks>(std::move(reader), part);
  return std::make_unique<PlainChunks>(std::move(reader), part);
}

}  // namespace tulle::linear
