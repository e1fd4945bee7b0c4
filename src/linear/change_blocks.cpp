#include "linear/change_blocks.hpp"

namespace tulle::linear {

AnyStream ChangeBlocks::as_sparse(int rank, std::span<const Change> changes, const Votes& votes) const {
  const auto cast = static_cast<std::size_t>(std::count_if(votes.begin(), votes.end(), [](float v) { return v != 0; }));
  Buffer index_buffer = Buffer::allocate((changes.size() + cast) * sizeof(std::uint32_t));
  Buffer value_buffer = Buffer::allocate((changes.size() + cast) * sizeof(float));
  std::uint32_t* indices = index_buffer.as_mutable<std::uint32_t>().data();
  float* values = value_buffer.as_mutable<float>().data();
  const auto put = [&](std::uint64_t place, float value) {
    *indices++ = static_cast<std::uint32_t>(place + shift(rank));
    *values++ = value;
  };
  for (const Change& change : changes) put(change.place, change.amount);
  for (std::size_t number = 0; number < kVotes; ++number) {
    if (votes[number] != 0) put(cut(rank + 1) + number, votes[number]);
  }
  return AnyStream::sparse(ValueType::f32, dimension(), block(rank), std::move(index_buffer), std::move(value_buffer));
}

}  // namespace tulle::linear
