// Reference-counted, aligned bytes from a pool that keeps freed memory.
//
// A Buffer is a view of a block that it shares with its copies and slices. That is how a message travels between
// simulated ranks without being copied, and why a block handed to a transport outlives its send. Freed blocks stay in
// the pool: in a training step the same sizes come again and again, and page faults would cost more than the sums.
//
// Threads: the pool may be used by any thread, under one lock. Buffers that share a block may be on different threads;
// one Buffer may be read by several threads, and changed by one while no other uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)
namespace tulle {

/// Gives memory aligned to 64 bytes, up to a quarter more than `bytes` and a header of 64. Never returns null; throws
/// std::bad_alloc.
void* pool_allocate(std::size_t bytes);
/// Puts memory back into the pool. REQUIRES: it came from pool_allocate(), or is null.
void pool_free(void* memory) noexcept;

/// What the pool did since the process began. `system_allocations` stands still in a steady state.
struct PoolStats {
  std::uint64_t system_allocations = 0;
  std::uint64_t reuses = 0;
  std::uint64_t cached_bytes = 0;
};
PoolStats pool_stats();

/// Gives all cached memory back to the system. Holds the pool's lock meanwhile.
void pool_trim();

/// A standard allocator on the pool, for containers that live in the steady state.
template <class T>
struct PoolAllocator {
  using value_type = T;
  PoolAllocator() = default;
  template <class U>
  PoolAllocator(const PoolAllocator<U>&) {}  // NOLINT(google-explicit-constructor): allocators convert
  T* allocate(std::size_t count) { return static_cast<T*>(pool_allocate(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t) noexcept { pool_free(memory); }
  template <class U>
  friend bool operator==(const PoolAllocator&, const PoolAllocator<U>&) {
    return true;
  }
};
template <class T>
using PoolVector = std::vector<T, PoolAllocator<T>>;
template <class T>
using PoolDeque = std::deque<T, PoolAllocator<T>>;

/// Copying, slicing and dropping cost a count each, not a pass over the bytes.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer& other) noexcept;
  Buffer(Buffer&& other) noexcept
      : block_(std::exchange(other.block_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        phantom_(std::exchange(other.phantom_, false)) {}
  Buffer& operator=(Buffer other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer();

  /// Memory from the pool, not initialized. Throws std::bad_alloc.
  static Buffer allocate(std::size_t bytes);
  static Buffer copy_of(std::span<const std::byte> bytes);
  /// Memory of the caller's that this and its copies and slices own together: `release` is called when the last goes,
  /// by the thread that drops it, and must not throw. For arrays of other libraries that shall travel without a copy.
  /// Where this throws std::bad_alloc, the memory is still the caller's.
  static Buffer adopt(std::byte* data, std::size_t bytes, std::function<void()> release);
  /// A view of memory that the caller keeps alive and unchanged while this Buffer, a copy or a slice is in use.
  static Buffer borrow(std::span<const std::byte> bytes);
  /// A length without bytes, for simulations larger than memory. Its data() is null.
  static Buffer phantom(std::size_t bytes);

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const std::byte* data() const { return data_; }
  std::span<const std::byte> bytes() const { return {data_, phantom_ ? 0 : size_}; }

  bool is_phantom() const { return phantom_; }
  bool is_borrowed() const { return block_ == nullptr && data_ != nullptr; }
  /// True when no other Buffer shares the block, so that writing to it changes nothing that others see.
  bool is_unique() const;

  /// REQUIRES: is_unique().
  std::byte* mutable_data();
  /// The bytes for a producer that fills a block while slices of it may already be shared.
  /// REQUIRES: the bytes written are not covered by a slice that was handed out as readable.
  std::byte* data_for_landing() { return data_; }

  /// Shares the block. REQUIRES: offset + length <= size().
  Buffer slice(std::size_t offset, std::size_t length) const;
  /// Gives itself, or a copy where the memory is borrowed.
  Buffer to_owned() const;

  /// Views that live as long as the block does. REQUIRES: data() is aligned for T.
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_), phantom_ ? 0 : size_ / sizeof(T)};
  }
  /// REQUIRES: as mutable_data().
  template <class T>
  std::span<T> as_mutable() {
    return {reinterpret_cast<T*>(mutable_data()), size_ / sizeof(T)};
  }

 private:
  struct Block;
  void swap(Buffer& other) noexcept {
    std::swap(block_, other.block_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(phantom_, other.phantom_);
  }

  Block* block_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool phantom_ = false;
};

/// The pieces of one message, in order.
using Segments = PoolVector<Buffer>;

}  // namespace tulle
#pragma GCC visibility pop
