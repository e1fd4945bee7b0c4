// Tile by tile, so that adding, marking, emitting and clearing find the values in the L1 cache.
#include "select/pack_selected.hpp"

#include <array>

#include "select/mark.hpp"
#include "select/survivors.hpp"
#include "select/tile_reader.hpp"
#include "stream/emit.hpp"

namespace tulle {
namespace {

// Two tiles (residual and addend) of 8-byte values fill half of an L1 cache of 32 KiB. Smaller ones call more often.
constexpr std::size_t kTile = 1024;

template <class I>
void clear_indices(const DenseInput& input, const I* indices, std::size_t count) {
  visit_bits(input.type, [&]<class Bits>() {
    auto* const residual = reinterpret_cast<Bits*>(input.residual);
    for (std::size_t i = 0; i < count; ++i) residual[indices[i] - input.range.begin] = 0;
  });
}

template <class V, class I>
void gather_words(const GatherSpec& spec, const V* values, std::size_t count, std::uint64_t begin,
                  Survivors<V, I>& survivors) {
  using Bits = BitsOf<V>;
  std::array<std::uint64_t, kTile / 64> words;
  mark(values, count, spec.side, spec.low, words.data());
  const PairsTarget<V, I> room = survivors.room_for(count + kEmitSlack);
  survivors.add(emit_occupied(words.data(), count / 64, reinterpret_cast<const Bits*>(values), begin,
                              PairsTarget<Bits, I>{room.indices, reinterpret_cast<Bits*>(room.values)}));
}

// A last word that the values do not fill is read from a copy, padded with zeros.
template <class V, class I>
void gather_tile(const GatherSpec& spec, const V* values, std::size_t count, std::uint64_t begin,
                 Survivors<V, I>& survivors) {
  const std::size_t whole = count / 64 * 64;
  gather_words(spec, values, whole, begin, survivors);
  if (whole == count) return;
  std::array<V, 64> padded{};
  std::copy(values + whole, values + count, padded.begin());
  gather_words(spec, padded.data(), padded.size(), begin + whole, survivors);
}

template <class V, class I>
void gather_part(const DenseInput& input, const GatherSpec& spec, Range part, Survivors<V, I>& survivors) {
  TileReader<V> reader(input, kTile);
  for (std::uint64_t first = part.begin; first < part.end; first += kTile) {
    const std::size_t count = std::min<std::uint64_t>(kTile, part.end - first);
    const std::size_t before = survivors.size();
    gather_tile(spec, reader.read(first, count), count, input.range.begin + first, survivors);
    if (spec.leave == Leave::all) continue;
    clear_indices(input, survivors.view().from(before).indices, survivors.size() - before);
  }
}

}  // namespace

AnyStream gather(const DenseInput& input, const GatherSpec& spec) {
  return visit_input(input, [&]<class V, class I>() {
    return run_parts<V, I>(input, kTile, spec.expected + kTile + kEmitSlack,
                           [&](Range part, Survivors<V, I>& survivors) { gather_part(input, spec, part, survivors); });
  });
}

DenseInput added_while_cached(const DenseInput& input) {
  if (input.addend == nullptr || !stays_cached(input)) return input;
  visit_compute_type(compute_type(input.type), [&]<class V>() {
    TileReader<V> reader(input, kTile);
    const std::uint64_t count = input.range.size();
    for (std::uint64_t first = 0; first < count; first += kTile) reader.read(first, std::min(kTile, count - first));
  });
  return input.accumulated();
}

void clear_at(const DenseInput& input, const AnyStream& stream) {
  visit_index_type(stream.dimension(),
                   [&]<class I>() { clear_indices(input, stream.indices_buffer().as<I>().data(), stream.nnz()); });
}

void put_back(const DenseInput& input, const AnyStream& stream) {
  const AnyStream stored = convert(stream, input.type);
  visit_bits(input.type, [&]<class Bits>() {
    visit_index_type(stored.dimension(), [&]<class I>() {
      const auto pairs = pairs_of<Bits, I>(stored);
      auto* const residual = reinterpret_cast<Bits*>(input.residual);
      for (std::size_t i = 0; i < pairs.size; ++i) residual[pairs.indices[i] - input.range.begin] = pairs.values[i];
    });
  });
}

}  // namespace tulle
