// States of synchronizers, one after the other: what is read is written as the same, and loaded on other ranks.
#include "gradient/saved_state.hpp"

#include <algorithm>
#include <tuple>

#include "fuzz/fuzz.hpp"

using namespace tulle;
using namespace tulle::gradient;

namespace {

// The checksum of each state that lies in the file whole.
void mend(std::string& file) {
  constexpr std::size_t kHeaderBytes = 32;
  for (std::size_t at = 0; at + kHeaderBytes <= file.size();) {
    const auto bytes = load_at<std::uint64_t>(std::as_bytes(std::span(file)).subspan(at), 16);
    if (bytes < kHeaderBytes || bytes > file.size() - at) return;
    fuzz::mend_checksum(file, at + 12, at + 16, at + bytes);
    at += bytes;
  }
}

bool has_same_arrays(const SavedState& a, const SavedState& b) {
  if (a.parameters.size() != b.parameters.size() || a.recipe != b.recipe || a.steps != b.steps) return false;
  for (std::size_t i = 0; i < a.parameters.size(); ++i) {
    const auto& [one, other] = std::tie(a.parameters[i].arrays, b.parameters[i].arrays);
    if (a.parameters[i].name != b.parameters[i].name || one.size() != other.size()) return false;
    for (std::size_t j = 0; j < one.size(); ++j) {
      const auto left = std::as_bytes(one[j].values), right = std::as_bytes(other[j].values);
      if (one[j].name != other[j].name || !std::ranges::equal(left, right)) return false;
    }
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  if (size % 8 != 7) mend(file);
  fuzz::read_hostile([&] {
    const Buffer whole = Buffer::copy_of(std::as_bytes(std::span(file)));
    std::vector<SavedState> states;
    for (std::uint64_t at = 0; at < whole.size();) {
      const std::uint64_t bytes = state_bytes(whole.bytes().subspan(at));
      states.push_back(decode_state(whole.slice(at, bytes)));
      fuzz::require(has_same_arrays(states.back(), decode_state(encode_state(states.back()))),
                    "a state says the same when it is written again");
      at += bytes;
    }
    for (const std::uint64_t ranks : {1, 3}) (void)resharded(states, {.rank = 0, .ranks = ranks});
  });
  return 0;
}
