// MPI's own allreduce behind the transport's interface, blocking and not.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "comm_mpi/mpi_fixture.hpp"

namespace tulle {
namespace {

enum class Mode { blocking, non_blocking };

// Small whole numbers, so that every type holds every result exactly.
template <class V>
V value_at(int rank, std::uint64_t i) {
  return static_cast<V>(1 + (static_cast<std::uint64_t>(rank) * 3 + i) % 4);
}

template <class V>
V serial(int ranks, std::uint64_t i, const std::function<V(V, V)>& combine) {
  V result = value_at<V>(0, i);
  for (int rank = 1; rank < ranks; ++rank) result = combine(result, value_at<V>(rank, i));
  return result;
}

template <class V>
Buffer values_of(int rank, std::uint64_t count) {
  Buffer buffer = Buffer::allocate(count * sizeof(V));
  auto values = buffer.as_mutable<V>();
  for (std::uint64_t i = 0; i < count; ++i) values[i] = value_at<V>(rank, i);
  return buffer;
}

template <class V>
void expect_reduced(const Buffer& result, int ranks, std::uint64_t count, const std::function<V(V, V)>& combine) {
  for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(result.as<V>()[i], serial<V>(ranks, i, combine)) << i;
}

void finish(Communicator& communicator, NativeAllreduce& native) {
  communicator.engine()->progress_until([&] { return native.test(); });
}

template <class V>
void check(Communicator& communicator, std::uint64_t count, OpCode op, Mode mode, std::function<V(V, V)> combine) {
  NativeAllreduce& native = *communicator.engine()->transport().native_allreduce();
  const Buffer result = Buffer::allocate(count * sizeof(V));
  native.start(values_of<V>(communicator.rank(), count), result, count, kValueTypeOf<V>, op, mode == Mode::blocking);
  if (mode == Mode::blocking) {
    EXPECT_TRUE(native.test());
  } else {
    finish(communicator, native);
  }
  expect_reduced<V>(result, communicator.size(), count, combine);
}

template <class V>
void check_arithmetic(Communicator& communicator, Mode mode) {
  check<V>(communicator, 1000, OpCode::sum, mode, [](V a, V b) { return static_cast<V>(a + b); });
  check<V>(communicator, 1000, OpCode::prod, mode, [](V a, V b) { return static_cast<V>(a * b); });
  check<V>(communicator, 1000, OpCode::min, mode, [](V a, V b) { return std::min(a, b); });
  check<V>(communicator, 1000, OpCode::max, mode, [](V a, V b) { return std::max(a, b); });
}

template <class V>
void check_bits(Communicator& communicator, Mode mode) {
  check<V>(communicator, 1000, OpCode::bit_and, mode, [](V a, V b) { return a & b; });
  check<V>(communicator, 1000, OpCode::bit_or, mode, [](V a, V b) { return a | b; });
  check<V>(communicator, 1000, OpCode::bit_xor, mode, [](V a, V b) { return a ^ b; });
}

class MpiNativeAllreduce : public testing::TestWithParam<Mode> {};

// Rank r has one at place r, where the others have numbers.
template <class V>
void check_nan(Communicator& communicator, OpCode op, Mode mode) {
  NativeAllreduce& native = *communicator.engine()->transport().native_allreduce();
  const auto ranks = static_cast<std::uint64_t>(communicator.size()), count = ranks + 20;
  Buffer mine = values_of<V>(communicator.rank(), count);
  mine.as_mutable<V>()[static_cast<std::size_t>(communicator.rank())] = std::numeric_limits<V>::quiet_NaN();
  const Buffer result = Buffer::allocate(count * sizeof(V));
  native.start(mine, result, count, kValueTypeOf<V>, op, mode == Mode::blocking);
  finish(communicator, native);
  for (std::uint64_t i = 0; i < count; ++i) EXPECT_EQ(std::isnan(result.as<V>()[i]), i < ranks) << i;
}

TEST_P(MpiNativeAllreduce, KeepsNaNInMinimaAndMaxima) {
  Communicator communicator = test_communicator();
  for (const OpCode op : {OpCode::min, OpCode::max}) {
    check_nan<float>(communicator, op, GetParam());
    check_nan<double>(communicator, op, GetParam());
  }
}

TEST_P(MpiNativeAllreduce, GivesTheSerialResultForEveryTypeAndOp) {
  Communicator communicator = test_communicator();
  check_arithmetic<float>(communicator, GetParam());
  check_arithmetic<double>(communicator, GetParam());
  check_arithmetic<std::int32_t>(communicator, GetParam());
  check_arithmetic<std::int64_t>(communicator, GetParam());
  check_bits<std::int32_t>(communicator, GetParam());
  check_bits<std::int64_t>(communicator, GetParam());
}

TEST_P(MpiNativeAllreduce, TakesAnyCount) {
  Communicator communicator = test_communicator({.chunk_bytes = 1000});
  for (const std::uint64_t count : {0, 1, 249, 250, 251, 10'007}) {
    check<float>(communicator, count, OpCode::sum, GetParam(), [](float a, float b) { return a + b; });
  }
}

TEST_P(MpiNativeAllreduce, ReducesInPlace) {
  Communicator communicator = test_communicator();
  NativeAllreduce& native = *communicator.engine()->transport().native_allreduce();
  const Buffer values = values_of<double>(communicator.rank(), 500);
  native.start(values, values, 500, ValueType::f64, OpCode::sum, GetParam() == Mode::blocking);
  finish(communicator, native);
  expect_reduced<double>(values, communicator.size(), 500, [](double a, double b) { return a + b; });
}

INSTANTIATE_TEST_SUITE_P(Modes, MpiNativeAllreduce, testing::Values(Mode::blocking, Mode::non_blocking),
                         [](const auto& mode) { return mode.param == Mode::blocking ? "blocking" : "non_blocking"; });

TEST(MpiNativeAllreduce, SeveralUnderWayAreAllMadeWhenTestSaysSo) {
  Communicator communicator = test_communicator();
  NativeAllreduce& native = *communicator.engine()->transport().native_allreduce();
  std::vector<Buffer> results;
  for (std::uint64_t count : {100'000, 10, 50'000}) {
    results.push_back(Buffer::allocate(count * sizeof(float)));
    native.start(values_of<float>(communicator.rank(), count), results.back(), count, ValueType::f32, OpCode::max,
                 false);
  }
  finish(communicator, native);
  for (const Buffer& result : results) {
    expect_reduced<float>(result, communicator.size(), result.size() / sizeof(float),
                          [](float a, float b) { return std::max(a, b); });
  }
}

TEST(MpiNativeAllreduce, WhatMpiCannotReduceIsUnsupported) {
  Communicator communicator = test_communicator();
  NativeAllreduce& native = *communicator.engine()->transport().native_allreduce();
  const Buffer buffer = Buffer::allocate(64);
  const auto kind_of = [&](ValueType type, OpCode op) {
    try {
      native.start(buffer, buffer, 4, type, op, true);
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::bad_input;
  };
  EXPECT_EQ(kind_of(ValueType::f16, OpCode::sum), ErrorKind::unsupported);
  EXPECT_EQ(kind_of(ValueType::bf16, OpCode::sum), ErrorKind::unsupported);
  EXPECT_EQ(kind_of(ValueType::f32, OpCode::user), ErrorKind::unsupported);
  EXPECT_EQ(kind_of(ValueType::f32, OpCode::bit_and), ErrorKind::system);  // refused by MPI
}

}  // namespace
}  // namespace tulle
