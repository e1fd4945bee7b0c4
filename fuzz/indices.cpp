// One index coding, TULLE_CODING: what is decoded is valid, and survives being coded again.
#include "fuzz/fuzz.hpp"
#include "stream/dispatch.hpp"
#include "stream/kernels.hpp"
#include "tulle/codec/index_coding.hpp"

using namespace tulle;

namespace {

void check(const Buffer& indices, Range range, std::uint64_t dimension, std::uint64_t nnz) {
  fuzz::require(indices.size() == nnz * index_bytes(dimension), "as many indices as were asked for");
  visit_index_type(dimension, [&]<class I>() { require_sorted(indices.as<I>(), dimension, range); });
  const AnyStream stream = AnyStream::sparse(ValueType::f32, dimension, range, indices, Buffer::allocate(nnz * 4));
  const Buffer again = encode_indices(IndexCoding::TULLE_CODING, stream);
  fuzz::require(again.size() == encoded_index_bytes(IndexCoding::TULLE_CODING, stream), "the announced size");
  const Buffer twice = decode_indices(IndexCoding::TULLE_CODING, again.bytes(), range, dimension, nnz);
  fuzz::require(std::ranges::equal(twice.bytes(), indices.bytes()), "the same indices again");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::uint64_t begin = input.take<std::uint16_t>();
  const Range range{begin, begin + input.take<std::uint16_t>()};
  const std::uint64_t nnz = input.take<std::uint16_t>();
  const std::uint64_t dimension =
      input.take<std::uint8_t>() % 2 == 0 ? range.end : range.end + (std::uint64_t{1} << 32);
  const fuzz::Bytes bytes = input.rest();
  fuzz::decode_hostile(
      [&] { check(decode_indices(IndexCoding::TULLE_CODING, bytes, range, dimension, nnz), range, dimension, nnz); });
  return 0;
}
