#include "tulle/comm/control.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <memory>
#include <string>

#include "comm/gather_bytes.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/stream/reduction.hpp"
#include "tulle/stream/stream.hpp"

namespace tulle {
namespace {

Buffer bytes_of(std::span<const double> values) { return Buffer::copy_of(std::as_bytes(values)); }

// All parts of the control plane are one gather, whose result is then made into something.
template <class T>
using Make = std::function<typename StoredResult<T>::Type(PoolVector<Buffer>)>;

template <class T>
Task<> run_gather(Operation& operation, Buffer mine, Make<T> make,
                  std::shared_ptr<std::optional<typename StoredResult<T>::Type>> result) {
  PoolVector<Buffer> parts = co_await gather_bytes(operation, mine, 0);
  *result = make(std::move(parts));
}

// What ranks must agree on is the function that they call; `detail` tells apart what it is called with.
template <class T>
Request<T> start_gather(Communicator& communicator, OperationKind kind, std::uint32_t detail, Buffer mine,
                        Make<T> make) {
  OperationSettings settings;
  settings.signature.kind = kind;
  settings.signature.options_hash = detail;
  auto result = std::make_shared<std::optional<typename StoredResult<T>::Type>>();
  auto operation = communicator.start(
      settings, [&](Operation& started) { return run_gather<T>(started, std::move(mine), std::move(make), result); });
  return {communicator.engine(), std::move(operation), std::move(result)};
}

Task<> run_giving(Operation& operation, Buffer bytes, int first_taker, std::shared_ptr<std::optional<Buffer>> result) {
  *result = Buffer();
  if (operation.rank() == 0) {
    for (int to = first_taker; to < operation.size(); ++to) operation.send(to, 0, {bytes}, 0);
  }
  if (operation.rank() < first_taker) co_return;
  const Incoming incoming = co_await operation.receive(0, 0);
  if (incoming.segments.size() != 1) {
    throw Error(ErrorKind::bad_message, fmt::format("rank 0 gave {} pieces", incoming.segments.size())).with_peer(0);
  }
  *result = incoming.segments[0];
}

std::vector<double> combine_parts(const PoolVector<Buffer>& parts, const Op& op) {
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    if (parts[rank].size() == parts[0].size()) continue;
    throw Error(ErrorKind::bad_message,
                fmt::format("combine: rank {} gives {} numbers, rank 0 {}", rank, parts[rank].size() / sizeof(double),
                            parts[0].size() / sizeof(double)));
  }
  const std::uint64_t count = parts[0].size() / sizeof(double);
  PoolVector<AnyStream> streams;
  for (const Buffer& part : parts) streams.push_back(AnyStream::dense(ValueType::f64, count, {0, count}, part));
  const AnyStream sum = reduce_many(streams, op, nullptr, LayoutChoice::dense);
  const auto values = sum.values_buffer().as<double>();
  return {values.begin(), values.end()};
}

Task<> throw_error(Error error) {
  throw error;
  co_return;
}

// A byte that is 0 where all is well and else an error's kind plus 1, then its text.
Buffer pack_failure(const std::exception_ptr& failure) {
  int kind = 0;
  std::string text;
  try {
    if (failure) std::rethrow_exception(failure);
  } catch (const Error& error) {
    kind = static_cast<int>(error.kind()) + 1;
    text = error.what();
  } catch (const std::exception& error) {
    kind = static_cast<int>(ErrorKind::system) + 1;
    text = error.what();
  } catch (...) {  // left to pass, it would keep this rank from telling the others
    kind = static_cast<int>(ErrorKind::system) + 1;
    text = "something that is no std::exception was thrown";
  }
  Buffer packed = Buffer::allocate(1 + text.size());
  packed.mutable_data()[0] = static_cast<std::byte>(kind);
  std::ranges::copy(std::as_bytes(std::span(text)), packed.mutable_data() + 1);
  return packed;
}

std::optional<Error> first_failure(const PoolVector<Buffer>& parts) {
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const std::span<const std::byte> packed = parts[rank].bytes();
    const int kind = packed.empty() ? -1 : static_cast<int>(packed[0]) - 1;
    if (packed.empty() || kind > static_cast<int>(kLastErrorKind)) {
      throw Error(ErrorKind::bad_message, fmt::format("rank {} tells of a failure that is none", rank))
          .with_peer(static_cast<int>(rank));
    }
    if (kind < 0) continue;
    return Error(static_cast<ErrorKind>(kind),
                 std::string(reinterpret_cast<const char*>(packed.data()) + 1, packed.size() - 1));
  }
  return std::nullopt;
}

}  // namespace

Request<void> ibarrier(Communicator& communicator) {
  return start_gather<void>(communicator, OperationKind::barrier, 0, {},
                            [](const PoolVector<Buffer>&) { return std::nullopt; });
}
void barrier(Communicator& communicator) { ibarrier(communicator).wait(); }

Request<std::vector<double>> icombine(Communicator& communicator, std::span<const double> values, const Op& op) {
  const std::string_view name = op.name();
  return start_gather<std::vector<double>>(communicator, OperationKind::combine, crc32c(std::as_bytes(std::span(name))),
                                           bytes_of(values),
                                           [op](const PoolVector<Buffer>& parts) { return combine_parts(parts, op); });
}
std::vector<double> combine(Communicator& communicator, std::span<const double> values, const Op& op) {
  return icombine(communicator, values, op).wait();
}

Request<std::vector<Buffer>> igather_bytes(Communicator& communicator, const Buffer& bytes) {
  return start_gather<std::vector<Buffer>>(
      communicator, OperationKind::gather_bytes, 0, bytes.to_owned(),
      [](const PoolVector<Buffer>& parts) { return std::vector<Buffer>(parts.begin(), parts.end()); });
}
std::vector<Buffer> gather_bytes(Communicator& communicator, const Buffer& bytes) {
  return igather_bytes(communicator, bytes).wait();
}

Request<Buffer> ibroadcast_bytes(Communicator& communicator, const Buffer& bytes, int root) {
  if (root < 0 || root >= communicator.size()) {
    throw Error(ErrorKind::bad_input,
                fmt::format("root {} is not a rank of a communicator of {}", root, communicator.size()));
  }
  Buffer mine = communicator.rank() == root ? bytes.to_owned() : Buffer();
  return start_gather<Buffer>(
      communicator, OperationKind::broadcast_bytes, static_cast<std::uint32_t>(root), std::move(mine),
      [root](const PoolVector<Buffer>& parts) { return parts[static_cast<std::size_t>(root)]; });
}
Buffer broadcast_bytes(Communicator& communicator, const Buffer& bytes, int root) {
  return ibroadcast_bytes(communicator, bytes, root).wait();
}

Request<Buffer> igive_bytes(Communicator& communicator, const Buffer& bytes, int first_taker) {
  assert(first_taker >= 1);
  OperationSettings settings{.signature = {}, .checksum = true};
  settings.signature.kind = OperationKind::give_bytes;
  settings.signature.options_hash = static_cast<std::uint32_t>(first_taker);
  Buffer mine = communicator.rank() == 0 ? bytes.to_owned() : Buffer();
  auto result = std::make_shared<std::optional<Buffer>>();
  auto operation = communicator.start(
      settings, [&](Operation& started) { return run_giving(started, std::move(mine), first_taker, result); });
  return {communicator.engine(), std::move(operation), std::move(result)};
}

Buffer give_bytes(Communicator& communicator, const Buffer& bytes, int first_taker) {
  return igive_bytes(communicator, bytes, first_taker).wait();
}

Request<void> ifail_together(Communicator& communicator, const std::exception_ptr& error) {
  return start_gather<void>(communicator, OperationKind::fail_together, 0, pack_failure(error), first_failure);
}
void fail_together(Communicator& communicator, const std::exception_ptr& error) {
  ifail_together(communicator, error).wait();
}

// An operation that fails on this rank breaks the communicator on all. It has a channel to itself: on another one
// messages of peers that are ahead would be taken for its own, and told as a mismatch instead of the error.
void break_context(Engine& engine, const std::shared_ptr<Context>& context, const Error& error) noexcept try {
  Channel& channel = engine.channel_of(*context, kMostChannels - 1);
  const auto failing = engine.start(context, channel, {}, [&](Operation&) { return throw_error(error); });
  // What this thread starts next must not leave before the others hear of the error: they would take it for another
  // operation than theirs, and tell that instead. A coroutine of the engine cannot wait for the engine.
  engine.require_outside_of_coroutines();
  engine.wait(*failing);
} catch (...) {  // the error itself; or no memory, without which the others run into their deadlines
}

void break_communicator(const Communicator& communicator, const Error& error) noexcept {
  break_context(*communicator.engine(), communicator.context(), error);
}

}  // namespace tulle
