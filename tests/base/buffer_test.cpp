#include "tulle/base/buffer.hpp"

#include <gtest/gtest.h>

#include <vector>

#include <cstdint>
#include <cstring>

namespace tulle {
namespace {

TEST(Buffer, IsEmptyWhenDefaultConstructed) {
  const Buffer buffer;
  EXPECT_TRUE(buffer.empty());
  EXPECT_FALSE(buffer.is_unique());
  EXPECT_FALSE(buffer.is_borrowed());
  EXPECT_FALSE(buffer.is_phantom());
}

TEST(Buffer, IsAlignedForAnyVector) {
  for (const std::size_t bytes : {1, 63, 64, 65, 1000, 5'000'000}) {
    const Buffer buffer = Buffer::allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u) << bytes;
    EXPECT_EQ(buffer.size(), bytes);
  }
}

TEST(Buffer, IsUniqueUntilACopyOrASliceSharesIt) {
  Buffer buffer = Buffer::allocate(100);
  EXPECT_TRUE(buffer.is_unique());
  {
    const Buffer copy = buffer;
    EXPECT_FALSE(buffer.is_unique());
    EXPECT_EQ(copy.data(), buffer.data());
  }
  EXPECT_TRUE(buffer.is_unique());
  const Buffer part = buffer.slice(10, 20);
  EXPECT_FALSE(buffer.is_unique());
  EXPECT_EQ(part.data(), buffer.data() + 10);
  buffer = {};
  EXPECT_TRUE(part.is_unique()) << "a slice keeps the block alive";
}

TEST(Buffer, MovesWithoutSharing) {
  Buffer source = Buffer::allocate(8);
  const Buffer moved = std::move(source);
  EXPECT_TRUE(moved.is_unique());
  EXPECT_TRUE(source.empty());  // NOLINT(bugprone-use-after-move): the moved-from state is the contract
}

TEST(Buffer, BorrowsWithoutCopyingAndCopiesOnRequest) {
  const std::uint32_t words[] = {1, 2, 3};
  const Buffer borrowed = Buffer::borrow(std::as_bytes(std::span(words)));
  EXPECT_TRUE(borrowed.is_borrowed());
  EXPECT_FALSE(borrowed.is_unique()) << "memory of the caller's is never written";
  EXPECT_EQ(borrowed.as<std::uint32_t>().data(), words);
  const Buffer owned = borrowed.to_owned();
  EXPECT_TRUE(owned.is_unique());
  EXPECT_EQ(owned.as<std::uint32_t>()[2], 3u);
  EXPECT_EQ(owned.to_owned().data(), owned.data()) << "what is owned is shared";
}

TEST(Buffer, OfAPhantomHasALengthAndNoBytes) {
  const Buffer phantom = Buffer::phantom(std::size_t{1} << 50);
  EXPECT_EQ(phantom.size(), std::size_t{1} << 50);
  EXPECT_EQ(phantom.data(), nullptr);
  EXPECT_TRUE(phantom.bytes().empty());
  EXPECT_TRUE(phantom.slice(7, 9).is_phantom());
  EXPECT_EQ(phantom.slice(7, 9).size(), 9u);
}

TEST(Pool, ServesASizeThatWasFreedWithoutTheSystem) {
  for (const std::size_t bytes : {1, 100, 4096, 70'000, 10'000'000}) {
    pool_free(pool_allocate(bytes));
    const PoolStats before = pool_stats();
    for (int i = 0; i < 10; ++i) pool_free(pool_allocate(bytes));
    const PoolStats after = pool_stats();
    EXPECT_EQ(after.system_allocations, before.system_allocations) << bytes;
    EXPECT_EQ(after.reuses, before.reuses + 10) << bytes;
  }
}

TEST(Pool, GivesAtLeastTheBytesAskedFor) {
  for (std::size_t bytes = 0; bytes < 5000; ++bytes) {
    void* memory = pool_allocate(bytes);
    std::memset(memory, 0x5a, bytes);  // the address sanitizer watches
    pool_free(memory);
  }
}

TEST(Pool, GivesCachedMemoryBackWhenTrimmed) {
  pool_free(pool_allocate(1 << 20));
  EXPECT_GT(pool_stats().cached_bytes, 0u);
  pool_trim();
  EXPECT_EQ(pool_stats().cached_bytes, 0u);
}

TEST(Pool, RefusesASizeThatNoMachineHas) { EXPECT_THROW(pool_allocate(std::size_t{1} << 60), std::bad_alloc); }

TEST(PoolVector, ReusesItsMemoryInASteadyState) {
  const auto fill = [] { PoolVector<int>(1000, 7); };
  fill();
  const PoolStats before = pool_stats();
  for (int i = 0; i < 10; ++i) fill();
  EXPECT_EQ(pool_stats().system_allocations, before.system_allocations);
}

TEST(Buffer, that_adopts_memory_releases_it_with_the_last_of_its_slices) {
  std::vector<std::byte> memory(100, std::byte{7});
  int released = 0;
  Buffer slice;
  {
    Buffer whole = Buffer::adopt(memory.data(), memory.size(), [&] { released += 1; });
    EXPECT_EQ(whole.data(), memory.data());
    EXPECT_FALSE(whole.is_borrowed());
    EXPECT_TRUE(whole.is_unique());
    whole.mutable_data()[3] = std::byte{9};
    slice = whole.slice(3, 10);
  }
  EXPECT_EQ(released, 0);
  EXPECT_EQ(slice.data()[0], std::byte{9});
  slice = {};
  EXPECT_EQ(released, 1);
}

}  // namespace
}  // namespace tulle
