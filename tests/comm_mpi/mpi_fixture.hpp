// What the tests of the MPI transport share: operations made of plain messages between the ranks.
#pragma once

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tulle/comm/mpi.hpp"

namespace tulle {

inline constexpr double kTestDeadlineSeconds = 20;

inline Communicator test_communicator(const MpiOptions& options = {}) {
  Communicator communicator = mpi_communicator(MPI_COMM_WORLD, options);
  communicator.set_default_deadline(kTestDeadlineSeconds);
  return communicator;
}

/// Runs `body(operation)`, a coroutine, as one operation of all ranks.
template <class Body>
void run_operation(Communicator& communicator, Body body, const CallSignature& signature = {}) {
  const auto operation =
      communicator.start({.signature = signature}, [&](Operation& started) { return body(started); });
  communicator.engine()->wait(*operation);
}

/// The error that run_operation throws.
template <class Body>
std::optional<Error> error_of_operation(Communicator& communicator, Body body, const CallSignature& signature = {}) {
  try {
    run_operation(communicator, body, signature);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

/// Bytes that tell whose they are and where they belong.
inline Buffer pattern(std::size_t bytes, std::uint64_t seed) {
  Buffer buffer = Buffer::allocate(bytes);
  std::byte* const data = buffer.mutable_data();
  std::uint64_t state = seed * 0x9E3779B97F4A7C15u + bytes;
  for (std::size_t i = 0; i < bytes; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    data[i] = static_cast<std::byte>(state >> 56);
  }
  return buffer;
}

inline Segments pattern_segments(const std::vector<std::size_t>& lengths, std::uint64_t seed) {
  Segments segments;
  for (std::size_t i = 0; i < lengths.size(); ++i) segments.push_back(pattern(lengths[i], seed + i));
  return segments;
}

inline bool same_bytes(const Segments& a, const Segments& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Buffer& x, const Buffer& y) {
    return x.size() == y.size() && std::equal(x.bytes().begin(), x.bytes().end(), y.bytes().begin());
  });
}

inline std::uint64_t seed_of(int rank) { return 1000 * static_cast<std::uint64_t>(rank + 1); }
inline int right_of(const Operation& operation) { return (operation.rank() + 1) % operation.size(); }
inline int left_of(const Operation& operation) { return (operation.rank() + operation.size() - 1) % operation.size(); }

/// Every rank sends segments of these lengths to its right and checks what comes from its left.
inline Task<> shift_right(Operation& operation, const std::vector<std::size_t>& lengths) {
  operation.send(right_of(operation), 0, pattern_segments(lengths, seed_of(operation.rank())), 0);
  const Incoming incoming = co_await operation.receive(left_of(operation), 0);
  EXPECT_TRUE(same_bytes(incoming.segments, pattern_segments(lengths, seed_of(left_of(operation)))));
}

/// Every rank sends one small message to every other and waits for theirs.
inline Task<> everyone_to_everyone(Operation& operation) {
  for (int peer = 0; peer < operation.size(); ++peer) {
    if (peer != operation.rank()) operation.send(peer, 0, pattern_segments({8}, seed_of(operation.rank())), 0);
  }
  for (int peer = 0; peer < operation.size(); ++peer) {
    if (peer != operation.rank()) co_await operation.receive(peer, 0);
  }
}

/// A copy of MPI_COMM_WORLD that counts how many duplicates of it were freed on this rank.
class MpiCommWitness {
 public:
  MpiCommWitness() {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, &MpiCommWitness::count, &key_, nullptr);
    MPI_Comm_set_attr(comm_, key_, &freed_);
  }
  ~MpiCommWitness() {
    MPI_Comm_delete_attr(comm_, key_);
    MPI_Comm_free(&comm_);
    MPI_Comm_free_keyval(&key_);
  }
  MpiCommWitness(const MpiCommWitness&) = delete;
  MpiCommWitness& operator=(const MpiCommWitness&) = delete;

  MPI_Comm comm() const { return comm_; }
  int freed_duplicates() const { return freed_; }

 private:
  static int count(MPI_Comm, int, void* attribute, void*) {
    *static_cast<int*>(attribute) += 1;
    return MPI_SUCCESS;
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int key_ = MPI_KEYVAL_INVALID;
  int freed_ = 0;
};

/// A test that needs a peer is skipped in a job of one rank.
#define TULLE_NEEDS_RANKS(count)                                          \
  do {                                                                    \
    int ranks_of_job = 0;                                                 \
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_of_job);                         \
    if (ranks_of_job < (count)) GTEST_SKIP() << "needs " #count " ranks"; \
  } while (false)

}  // namespace tulle
