// rice: Golomb-Rice codes of the gaps between indices, within 1 % of the entropy where positions are uniform.
//
// How it works. The gap before an index is how many positions it leaves out: index − previous − 1, where the index
// before the first is begin − 1. A gap is split at a *shift*: its low `shift` bits go to one array, packed without
// holes; the quotient gap >> shift goes to another in unary, that many zeros and a one. Two arrays instead of one
// stream of codes are what makes it fast: low bits lie at places known beforehand, and quotients are distances between
// the ones of a bitmap, which are found a word at a time.
//
// Bytes: 1 for the shift, nnz·shift/8 of low bits, (nnz + Σ quotients)/8 of unary bits. The shift is the best one for
// geometric gaps of the stream's density (Kiely, "Selecting the Golomb Parameter in Rice Coding", 2004): the golden
// ratio comes from comparing a shift with the next. It travels in the first byte, so decoding does not depend on that
// choice. Elias-Fano has the same two arrays but codes positions instead of gaps, and takes 0.4 bits more at these
// densities.
#include <algorithm>
#include <bit>
#include <cmath>

#include "codec/index_codings.hpp"

namespace tulle {
namespace {

constexpr unsigned kMaxShift = 56;  // a field and the 7 bits before it fit in a 64-bit word

unsigned shift_for(double density) {
  if (density >= 1) return 0;
  constexpr double kLogGolden = -0.48121182505960347;  // log(φ − 1)
  const double shift = 1 + std::floor(std::log2(kLogGolden / std::log1p(-density)));
  return static_cast<unsigned>(std::clamp(shift, 0.0, double{kMaxShift}));
}

// Where the arrays of a message begin, and how long they are.
struct Sections {
  std::uint64_t low_bytes;
  std::uint64_t unary_bytes;
  std::uint64_t total() const { return 1 + low_bytes + unary_bytes; }
};

std::uint64_t low_bytes_of(std::uint64_t nnz, unsigned shift) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(nnz) * shift + 7) / 8);
}

template <class I>
std::uint64_t sum_of_quotients(std::span<const I> indices, std::uint64_t begin, unsigned shift) {
  if (indices.empty()) return 0;
  std::uint64_t sum = (indices[0] - begin) >> shift;
  for (std::size_t i = 1; i < indices.size(); ++i) sum += (indices[i] - indices[i - 1] - 1) >> shift;
  return sum;
}

Sections sections_of(const AnyStream& stream, unsigned shift) {
  const std::uint64_t quotients = visit_index_type(stream.dimension(), [&]<class I>() {
    return sum_of_quotients(stream.indices_buffer().as<I>(), stream.range().begin, shift);
  });
  return {low_bytes_of(stream.nnz(), shift), divide_up(stream.nnz() + quotients, 8)};
}

// Fields of `width` bits, one after the other, the first in the lowest bits.
class BitWriter {
 public:
  BitWriter(std::byte* out, unsigned width) : out_(out), width_(width) {}
  void put(std::uint64_t field) {
    word_ |= field << filled_;
    filled_ += width_;
    if (filled_ < 64) return;
    flush(8);
    filled_ -= 64;
    word_ = filled_ == 0 ? 0 : field >> (width_ - filled_);
  }
  void finish() { flush((filled_ + 7) / 8); }

 private:
  void flush(std::size_t bytes) {
    std::memcpy(out_, &word_, bytes);
    out_ += bytes;
  }
  std::byte* out_;
  unsigned width_;
  unsigned filled_ = 0;
  std::uint64_t word_ = 0;
};

template <class I>
void write_gaps(std::span<const I> indices, std::uint64_t begin, unsigned shift, std::byte* low, std::uint8_t* unary) {
  const std::uint64_t mask = (std::uint64_t{1} << shift) - 1;
  BitWriter writer(low, shift);
  std::uint64_t next = begin;  // the position after the index before
  std::uint64_t one = 0;       // where the next one goes if the quotient is zero
  for (const I index : indices) {
    const std::uint64_t gap = index - next;
    next = std::uint64_t{index} + 1;
    writer.put(gap & mask);
    one += gap >> shift;
    unary[one / 8] |= static_cast<std::uint8_t>(1u << (one % 8));
    ++one;
  }
  writer.finish();
}

// The parts of a message that are valid as far as can be told before gaps are added up.
struct Message {
  unsigned shift;
  std::span<const std::byte> low;  ///< and what follows, so that a whole word can be read
  std::span<const std::byte> unary;
};

void validate_low_padding(std::span<const std::byte> low, std::uint64_t nnz, unsigned shift) {
  const auto used = static_cast<unsigned>(nnz % 8 * shift % 8);
  if (used != 0 && std::to_integer<unsigned>(low.back()) >> used != 0) reject_indices("rice", "padding is not zero");
}

// That zeros · 2^shift stay inside the range is what keeps quotients from overflowing.
void validate_unary(std::span<const std::byte> unary, Range range, std::uint64_t nnz, unsigned shift) {
  if (!unary.empty() && unary.back() == std::byte{0}) reject_indices("rice", "the last byte is empty");
  const std::uint64_t ones = count_bits(unary);
  if (ones != nnz) reject_indices("rice", fmt::format("{} indices, expected {}", ones, nnz));
  if (unary.empty()) return;
  const std::uint64_t zeros = unary.size() * 8 - std::countl_zero(std::to_integer<std::uint8_t>(unary.back())) - ones;
  if (zeros > range.size() >> shift) reject_indices("rice", "gaps are larger than the range");
}

Message split(std::span<const std::byte> bytes, Range range, std::uint64_t nnz) {
  if (bytes.empty()) reject_indices("rice", "the shift is missing");
  const auto shift = std::to_integer<unsigned>(bytes[0]);
  if (shift > kMaxShift) reject_indices("rice", fmt::format("a shift of {}, at most {}", shift, kMaxShift));
  const std::uint64_t low_bytes = low_bytes_of(nnz, shift);
  if (bytes.size() - 1 < low_bytes) {
    reject_indices("rice", fmt::format("{} bytes do not hold {} indices", bytes.size(), nnz));
  }
  const Message message{shift, bytes.subspan(1), bytes.subspan(1 + low_bytes)};
  validate_low_padding(message.low.first(low_bytes), nnz, shift);
  validate_unary(message.unary, range, nnz, shift);
  return message;
}

template <class I>
bool read_gaps(const Message& message, Range range, I* indices) {
  const std::uint64_t mask = (std::uint64_t{1} << message.shift) - 1;
  std::uint64_t next = range.begin, after_one = 0, low_bit = 0;
  bool fits = true;
  for (std::size_t offset = 0; offset < message.unary.size(); offset += 8) {
    for (std::uint64_t word = word_at(message.unary, offset); word != 0; word &= word - 1) {
      const std::uint64_t one = offset * 8 + std::countr_zero(word);
      const std::uint64_t low = word_at(message.low, low_bit / 8) >> (low_bit % 8) & mask;
      const std::uint64_t gap = (one - after_one) << message.shift | low;
      fits &= gap < range.end - next;
      *indices++ = static_cast<I>(next + gap);
      next += gap + 1;
      after_one = one + 1;
      low_bit += message.shift;
    }
  }
  return fits;
}

}  // namespace

std::uint64_t rice_bytes(const AnyStream& stream) { return sections_of(stream, shift_for(stream.density())).total(); }

double rice_expected_bits(double density, std::size_t) {
  const unsigned shift = shift_for(density);
  return shift - 1 / std::expm1(std::exp2(shift) * std::log1p(-density));
}

Buffer encode_rice(const AnyStream& stream) {
  const unsigned shift = shift_for(stream.density());
  const Sections sections = sections_of(stream, shift);
  Buffer buffer = Buffer::allocate(sections.total());
  std::byte* const out = buffer.mutable_data();
  out[0] = static_cast<std::byte>(shift);
  std::byte* const unary = out + 1 + sections.low_bytes;
  std::fill_n(unary, sections.unary_bytes, std::byte{0});
  visit_index_type(stream.dimension(), [&]<class I>() {
    write_gaps(stream.indices_buffer().as<I>(), stream.range().begin, shift, out + 1,
               reinterpret_cast<std::uint8_t*>(unary));
  });
  return buffer;
}

Buffer decode_rice(std::span<const std::byte> bytes, Range range, std::uint64_t dimension, std::uint64_t nnz,
                   Buffer landing) {
  const Message message = split(bytes, range, nnz);
  const bool fits =
      visit_index_type(dimension, [&]<class I>() { return read_gaps(message, range, place_indices<I>(landing, nnz)); });
  if (!fits) reject_indices("rice", fmt::format("an index is beyond {}", range.end));
  return landing;
}

}  // namespace tulle
