// What happens when an allocation fails, for each one that a rank makes: an error, and neither an abort nor a hang.
//
// The program's own operator new and aligned_alloc, which the pool uses, fail on demand, on one thread. Not for
// sanitizers, which have their own.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <limits>
#include <new>
#include <ostream>

#include "tulle/comm/control.hpp"
#include "tulle/comm/datagram.hpp"
#include "tulle/comm/threads.hpp"

namespace {

constexpr int kNever = std::numeric_limits<int>::max();
thread_local int allocations_left = kNever;  // until one fails
thread_local bool fails_on = false;          // all that come after it fail, too

bool must_fail() {
  if (allocations_left == kNever) return false;
  if (allocations_left > 0) {
    allocations_left -= 1;
    return false;
  }
  if (!fails_on) allocations_left = kNever;
  return true;
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  void* memory = nullptr;
  if (must_fail() || posix_memalign(&memory, std::max(alignment, sizeof(void*)), bytes) != 0) return nullptr;
  return memory;
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  void* const memory = allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate_or_throw(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return allocate(bytes, alignment); }

namespace tulle {
namespace {

struct Sparing {
  const char* name;
  void (*run)(Communicator&);
};
void PrintTo(const Sparing& each, std::ostream* out) { *out << each.name; }

void call_everything(Communicator& communicator) {
  barrier(communicator);
  const double one[] = {1};
  combine(communicator, one);
  gather_bytes(communicator, Buffer::allocate(100));
  Communicator part = communicator.split(0);
  barrier(part);
}

void drop_requests(Communicator& communicator) {
  const OperationSettings settings{.signature = {}, .borrows = true};
  const auto wait = [](Operation& operation) -> Task<> { co_await operation.receive(1 - operation.rank(), 0); };
  Request<void> borrowing(communicator.engine(), communicator.start(settings, wait),
                          std::make_shared<std::optional<std::optional<Error>>>());
  auto going_on = ibarrier(communicator);
}

void exchange_datagrams(Communicator& communicator) {
  DatagramPort port(communicator);
  for (int i = 0; i < 3; ++i) port.send(1 - communicator.rank(), {Buffer::allocate(100)});
  for (int i = 0; i < 3; ++i) (void)port.receive_for(1e-3);  // what cannot be kept is lost: datagrams have no deadline
}

void break_it(Communicator& communicator) {
  if (communicator.rank() == 0) break_communicator(communicator, Error(ErrorKind::bad_input, "no such file"));
  try {
    barrier(communicator);
  } catch (const Error&) {
  }
}

class NoMemory : public ::testing::TestWithParam<Sparing> {};
INSTANTIATE_TEST_SUITE_P(Calls, NoMemory,
                         ::testing::Values(Sparing{"collectives", call_everything},
                                           Sparing{"dropped_requests", drop_requests},
                                           Sparing{"datagrams", exchange_datagrams}, Sparing{"breaking", break_it}),
                         [](const auto& sparing) { return sparing.param.name; });

// True where rank 0 came to the end without asking for so many allocations.
bool is_spared(const Sparing& sparing, int allocations, bool for_good, bool helped) {
  bool spared = false;
  pool_trim();  // what is cached needs no system
  try {
    run_threads(2, [&](Communicator& communicator) {
      communicator.set_default_deadline(1e6);
      if (helped) communicator.start_progress_thread();
      if (communicator.rank() == 0) {
        fails_on = for_good;
        allocations_left = allocations;
      }
      sparing.run(communicator);
      if (communicator.rank() == 0) spared = allocations_left > 0 && allocations_left != kNever;
    });
  } catch (const Error&) {
  } catch (const std::bad_alloc&) {
  }
  return spared;
}

TEST_P(NoMemory, is_an_error_wherever_it_strikes_and_nobody_waits_for_ever) {
  for (const bool helped : {false, true}) {
    for (const bool for_good : {false, true}) {
      int allocations = 0;
      while (!is_spared(GetParam(), allocations, for_good, helped)) ASSERT_LT(++allocations, 5000);
      EXPECT_GT(allocations, 0);
    }
  }
}

}  // namespace
}  // namespace tulle
