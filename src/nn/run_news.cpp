#include "nn/run_news.hpp"

#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "tulle/base/error.hpp"

namespace tulle::nn {
namespace {

// The number, and a reason after it.
void send(DatagramPort& port, int to, std::uint64_t run, const std::string& why) {
  Buffer bytes = Buffer::allocate(sizeof run + why.size());
  const std::span<std::byte> place = bytes.as_mutable<std::byte>();
  std::memcpy(place.data(), &run, sizeof run);
  std::memcpy(place.data() + sizeof run, why.data(), why.size());
  port.send(to, {std::move(bytes)});
}

}  // namespace

void send_run(DatagramPort& port, int to, std::uint64_t run) { send(port, to, run, ""); }
void send_refusal(DatagramPort& port, int to, const std::string& why) { send(port, to, 0, why); }

std::uint64_t receive_run(DatagramPort& port, double seconds) {
  std::optional<Datagram> news = port.receive_for(seconds);
  // Other ranks may have been refused by rank 0 already, and left.
  while (news && news->failure && news->from != 0) news = port.receive_for(seconds);
  if (!news) {
    throw Error(
        ErrorKind::deadline,
        fmt::format("rank 0 did not say within {} s which run this is, as it does before checkpoints", seconds));
  }
  if (news->failure) throw Error(*news->failure);
  std::uint64_t run = 0;
  const std::span<const std::byte> bytes = news->segments.front().bytes();
  if (bytes.size() < sizeof run) throw Error(ErrorKind::bad_message, "the number of a run has too few bytes");
  std::memcpy(&run, bytes.data(), sizeof run);
  const std::span<const std::byte> why = bytes.subspan(sizeof run);
  if (why.empty()) return run;
  throw Error(ErrorKind::bad_input, std::string(reinterpret_cast<const char*>(why.data()), why.size()));
}

}  // namespace tulle::nn
