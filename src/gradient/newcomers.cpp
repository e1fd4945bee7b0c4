// How ranks that come later are made equal to the others, at the end of a step.
//
// How it works. The new communicator's first ranks are the old ones. Rank 0 tells all how many they are. All compare
// what they registered, and rank 0 sends the newcomers what is the same everywhere: what the synchronizer keeps, then
// the arrays. All ranks then compare a CRC of the arrays that they hold. Nothing of the old ranks has changed until
// here, and the old communicator is as it was: the old ranks agree on it that all of them are ready, and move. Where
// one is not, they stay, and the newcomers find that nobody speaks to them. An old rank is ready when it knows all
// CRCs, so that every newcomer has all it needs by then, and takes part whatever happens to its own last message.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "gradient/elastic_run.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/gradient/elastic.hpp"

namespace tulle::gradient {
namespace {

using Arrays = std::span<const std::span<std::byte>>;

// Rank 0 says how many newcomers there are.
Task<int> tell_newcomers(Communicator& grown, int newcomers) {
  const auto number = static_cast<std::uint32_t>(newcomers);
  Request<Buffer> telling = ibroadcast_bytes(grown, Buffer::copy_of(std::as_bytes(std::span(&number, 1))));
  const Buffer told = co_await telling;
  std::uint32_t heard = 0;
  if (told.size() == sizeof(heard)) std::memcpy(&heard, told.data(), sizeof(heard));
  if (heard == 0 || heard >= static_cast<std::uint32_t>(grown.size())) {
    throw Error(ErrorKind::bad_message, fmt::format("{} newcomers among {} ranks", heard, grown.size()));
  }
  co_return static_cast<int>(heard);
}

Buffer joined(Arrays arrays) {
  std::size_t bytes = 0;
  for (const std::span<std::byte> array : arrays) bytes += array.size();
  Buffer buffer = Buffer::allocate(bytes);
  auto place = buffer.as_mutable<std::byte>().begin();
  for (const std::span<std::byte> array : arrays) place = std::ranges::copy(array, place).out;
  return buffer;
}

void write_to(Arrays arrays, const Buffer& buffer, int rank) {
  std::size_t room = 0;
  for (const std::span<std::byte> array : arrays) room += array.size();
  if (buffer.size() != room) {
    throw Error(ErrorKind::mismatch,
                fmt::format("rank 0 has arrays of {} bytes, and this rank of {}", buffer.size(), room))
        .at_rank(rank);
  }
  std::span<const std::byte> rest = buffer.bytes();
  for (const std::span<std::byte> array : arrays) {
    std::ranges::copy(rest.first(array.size()), array.begin());
    rest = rest.subspan(array.size());
  }
}

// The arrays of rank 0 come to the newcomers; then all ranks know whether they hold the same.
Task<> send_arrays(Communicator& grown, int newcomers, Arrays arrays) {
  const bool is_new = grown.rank() >= grown.size() - newcomers;
  const Buffer mine = grown.rank() == 0 ? joined(arrays) : Buffer();
  Request<Buffer> giving = igive_bytes(grown, mine, grown.size() - newcomers);
  const Buffer given = co_await giving;
  const std::exception_ptr failure = failure_of([&] {
    if (is_new) write_to(arrays, given, grown.rank());
  });
  Request<void> agreed = ifail_together(grown, failure);
  co_await agreed;
  const Buffer held = joined(arrays);
  const double crc = crc32c(held.bytes());
  const double sides[] = {crc, -crc};
  Request<std::vector<double>> comparing = icombine(grown, sides, Op::max());
  std::vector<double> largest;
  try {
    largest = co_await comparing;
  } catch (...) {
    // Somebody was lost. Old ranks that had come through count on the newcomers, whose part they have: whether there
    // were some shows in the first step.
    if (!is_new || !can_go_on_after(std::current_exception())) throw;
    co_return;
  }
  if (largest[0] == -largest[1]) co_return;
  throw Error(ErrorKind::mismatch, "ranks hold different arrays after a newcomer took them: by CRC-32C");
}

}  // namespace

Task<> ElasticRun::welcome(Communicator grown) {
  const int newcomers = grown.size() - communicator_.size();
  Task<int> telling = tell_newcomers(grown, newcomers);
  co_await telling;
  Task<> welcoming = options_.synchronizer->await_welcome(grown, newcomers);
  co_await welcoming;
  Task<> giving = send_arrays(grown, newcomers, options_.arrays);
  co_await giving;
}

Task<> ElasticRun::take_up(Communicator grown) {
  MembershipChange change{.step = completed_, .joined = grown.size() - communicator_.size()};
  for (int rank = 0; rank < communicator_.size(); ++rank) change.survivors.push_back(rank);
  Task<> moving = options_.synchronizer->await_move_to(grown, completed_);
  co_await moving;
  journal_.forget();
  communicator_ = std::move(grown);
  report_.joined += change.joined;
  tries_ = 0;
  untold_.push_back(std::move(change));
}

Task<Synchronizer> await_join_elastic(Communicator grown, std::vector<Parameter> parameters, Recipe recipe,
                                      SynchronizerOptions options, Arrays arrays) {
  Task<int> telling = tell_newcomers(grown, 0);
  const int newcomers = co_await telling;
  Task<Synchronizer> joining =
      Synchronizer::await_join(grown, newcomers, std::move(parameters), std::move(recipe), options);
  Synchronizer synchronizer = co_await joining;
  Task<> taking = send_arrays(grown, newcomers, arrays);
  co_await taking;
  co_return synchronizer;
}

Synchronizer join_elastic(Communicator grown, std::vector<Parameter> parameters, const Recipe& recipe,
                          const SynchronizerOptions& options, Arrays arrays) {
  return run_task(grown, await_join_elastic(grown, std::move(parameters), recipe, options, arrays));
}

}  // namespace tulle::gradient
