// Messages of agreements: whatever is taken for one is written again as the same bytes.
#include "comm/agreement_message.hpp"

#include <algorithm>

#include "fuzz/fuzz.hpp"

using namespace tulle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const int ranks = input.take<std::uint8_t>();
  const fuzz::Bytes bytes = input.rest();
  fuzz::decode_hostile([&] {
    const Buffer segments[] = {Buffer::borrow(bytes)};
    const AgreementMessage message = decode_agreement_message(segments, ranks);
    const Segments again = encode_agreement_message(message);
    fuzz::require(decode_agreement_message(again, ranks) == message, "a message says the same when it is sent on");
    fuzz::require(again[0].size() == bytes.size(), "a message has no bytes that mean nothing");
  });
  return 0;
}
