// Letters between parameter servers and workers: what is taken for one is written again as the same bytes.
#include "server/letters.hpp"

#include <algorithm>

#include "fuzz/fuzz.hpp"

using namespace tulle;
using namespace tulle::server;

namespace {

constexpr std::size_t kChecksumAt = 36, kAfterChecksum = 40;

// Of the body and of the head without its place.
void mend(fuzz::Bytes& head, const fuzz::Bytes& body) {
  if (head.size() < kLetterHeadBytes) return;
  const std::span<std::byte> bytes = head;
  const std::uint32_t front = crc32c(bytes.first(kChecksumAt), crc32c(body));
  store_at(bytes, kChecksumAt, crc32c(bytes.subspan(kAfterChecksum), front));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  fuzz::Bytes head = input.take_bytes(input.take<std::uint8_t>());
  const fuzz::Bytes body = input.rest();
  if (size % 8 != 7) mend(head, body);
  fuzz::decode_hostile([&] {
    Segments segments;
    segments.push_back(Buffer::copy_of(head));
    segments.push_back(Buffer::copy_of(body));
    const Letter letter = decode_letter(1, segments);
    fuzz::require(text_of(letter.body).size() == body.size(), "a letter has its body");
    const Segments again = encode_letter(letter.head, body_of(letter.body));
    fuzz::require(again.size() == 2 && std::ranges::equal(again[0].bytes(), head), "a letter is sent on as it came");
  });
  return 0;
}
