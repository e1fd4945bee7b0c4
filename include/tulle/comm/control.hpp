// The control plane: few numbers and bytes that ranks agree on, beside the collectives that carry data.
//
// All but break_communicator() are collective, take ⌈log2 P⌉ rounds of small messages on the communicator's channel,
// and exist twice: blocking, and with an `i` in front as a request to wait for or to co_await. They count P times what
// a rank gives, so they are for kilobytes; give_bytes() is for any size.
//
// Threads: any thread may call, one at a time on a channel.
#pragma once

#include <exception>
#include <span>
#include <vector>

#include "tulle/comm/communicator.hpp"
#include "tulle/stream/op.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// Ends when all ranks have called it.
void barrier(Communicator& communicator);
Request<void> ibarrier(Communicator& communicator);

/// Every rank's values reduced element by element, in the order of ranks: the same bits everywhere.
/// REQUIRES: as many values on every rank, or bad_message is thrown.
std::vector<double> combine(Communicator& communicator, std::span<const double> values, const Op& op = Op::sum());
Request<std::vector<double>> icombine(Communicator& communicator, std::span<const double> values,
                                      const Op& op = Op::sum());

/// What every rank gives, by rank; lengths may differ.
std::vector<Buffer> gather_bytes(Communicator& communicator, const Buffer& bytes);
Request<std::vector<Buffer>> igather_bytes(Communicator& communicator, const Buffer& bytes);

/// The bytes that `root` gives; elsewhere `bytes` is not looked at.
Buffer broadcast_bytes(Communicator& communicator, const Buffer& bytes, int root = 0);
Request<Buffer> ibroadcast_bytes(Communicator& communicator, const Buffer& bytes, int root = 0);

/// The bytes that rank 0 gives, on the ranks from `first_taker` on, each by one message that is checked by CRC; nothing
/// elsewhere. Ranks that neither give nor take wait for nobody. REQUIRES: first_taker is 1 or more, the same
/// everywhere.
Buffer give_bytes(Communicator& communicator, const Buffer& bytes, int first_taker);
Request<Buffer> igive_bytes(Communicator& communicator, const Buffer& bytes, int first_taker);

/// Where a rank gives an error, all throw what the lowest such rank gives, and the communicator stays usable: for
/// failures outside of collectives, such as a bad file, of which the others would not hear.
void fail_together(Communicator& communicator, const std::exception_ptr& error);
Request<void> ifail_together(Communicator& communicator, const std::exception_ptr& error);

/// Gives up: breaks the communicator here and on all other ranks, which hear of it at once with the error's text. Not
/// collective, and waits for nobody. Does nothing where the communicator is broken already.
void break_communicator(const Communicator& communicator, const Error& error) noexcept;
/// The same for who has no handle, because it runs on the engine.
void break_context(Engine& engine, const std::shared_ptr<Context>& context, const Error& error) noexcept;

/// The error that `work` throws, for fail_together(); null where all went well.
template <class Work>
std::exception_ptr failure_of(Work work) {
  try {
    work();
  } catch (const Error&) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace tulle
#pragma GCC visibility pop
