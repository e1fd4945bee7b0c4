// Frames: a head and its arrays. What is decoded is a valid stream.
#include "tulle/codec/frame.hpp"
#include "fuzz/fuzz.hpp"

using namespace tulle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::size_t first_length = input.take<std::uint16_t>();
  const fuzz::Bytes head_bytes = input.take_bytes(kFrameHeadBytes), first = input.take_bytes(first_length),
                    second = input.rest();
  fuzz::decode_hostile([&] {
    const FrameHead head = decode_frame_head(head_bytes);
    // A receiver knows N; 2^20 stands for it, so that a head alone cannot ask for much memory.
    const std::uint64_t dimension = std::min<std::uint64_t>(head.dimension, std::uint64_t{1} << 20);
    const Buffer buffers[] = {Buffer::borrow(head_bytes), Buffer::borrow(first), Buffer::borrow(second)};
    std::span<const Buffer> segments(buffers);
    const DecodedFrame frame = decode_frame(segments, {head.type, head.op, head.sequence, dimension});
    fuzz::require(frame.stream.nnz() == head.nnz, "as many values as the head says");
    frame.stream.validate();
  });
  return 0;
}
