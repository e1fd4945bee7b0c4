#include "tulle/base/buffer.hpp"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

namespace tulle {
namespace {

// Every block starts with this header, in a cache line of its own so that what follows is aligned.
struct alignas(64) BlockHeader {
  BlockHeader* next_free = nullptr;
  std::uint32_t size_class = 0;
};
constexpr std::size_t kHeaderBytes = sizeof(BlockHeader);
static_assert(kHeaderBytes == 64);

// Four classes to every power of two, so that at most a quarter of a block is wasted. The smallest holds 64 bytes.
constexpr std::uint32_t kClassesPerDoubling = 4;
constexpr std::uint32_t kSmallestShift = 6;
constexpr std::uint32_t kClasses = kClassesPerDoubling * (48 - kSmallestShift);

// Above this size huge pages pay: fewer faults on first touch and fewer TLB misses afterwards.
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

std::uint32_t class_of(std::size_t bytes) {
  if (bytes <= (std::size_t{1} << kSmallestShift)) return 0;
  const auto shift = static_cast<std::uint32_t>(std::bit_width(bytes - 1)) - 1;  // 2^shift < bytes <= 2^(shift+1)
  const std::size_t quarter = std::size_t{1} << (shift - 2);
  const auto step = static_cast<std::uint32_t>((bytes - (std::size_t{1} << shift) + quarter - 1) / quarter);  // 1..4
  return (shift - kSmallestShift) * kClassesPerDoubling + step;
}

std::size_t bytes_of(std::uint32_t size_class) {
  const std::uint32_t shift = size_class / kClassesPerDoubling + kSmallestShift;
  const std::size_t quarter = std::size_t{1} << (shift - 2);
  return (std::size_t{1} << shift) + (size_class % kClassesPerDoubling) * quarter;
}

class Pool {
 public:
  static Pool& instance() {
    static Pool* pool = new Pool;  // never destroyed: buffers of unfinished sends may outlive static destructors
    return *pool;
  }

  void* allocate(std::size_t bytes) {
    const std::uint32_t size_class = class_of(bytes);
    if (size_class >= kClasses) throw std::bad_alloc();
    {
      const std::lock_guard lock(mutex_);
      if (BlockHeader* header = free_[size_class]) {
        free_[size_class] = header->next_free;
        stats_.reuses += 1;
        stats_.cached_bytes -= bytes_of(size_class);
        return payload_of(header);
      }
      stats_.system_allocations += 1;
    }
    return payload_of(from_system(size_class));
  }

  void free(void* memory) noexcept {
    auto* header = reinterpret_cast<BlockHeader*>(static_cast<std::byte*>(memory) - kHeaderBytes);
    const std::lock_guard lock(mutex_);
    header->next_free = free_[header->size_class];
    free_[header->size_class] = header;
    stats_.cached_bytes += bytes_of(header->size_class);
  }

  void trim() {
    const std::lock_guard lock(mutex_);
    for (BlockHeader*& list : free_) {
      while (list != nullptr) std::free(std::exchange(list, list->next_free));
    }
    stats_.cached_bytes = 0;
  }

  PoolStats stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  static void* payload_of(BlockHeader* header) { return reinterpret_cast<std::byte*>(header) + kHeaderBytes; }

  static BlockHeader* from_system(std::uint32_t size_class) {
    const std::size_t total = bytes_of(size_class) + kHeaderBytes;
    const bool huge = total >= 2 * kHugePageBytes;
    const std::size_t alignment = huge ? kHugePageBytes : 64;
    void* memory = std::aligned_alloc(alignment, (total + alignment - 1) / alignment * alignment);
    if (memory == nullptr) throw std::bad_alloc();
    if (huge) madvise(memory, total, MADV_HUGEPAGE);  // a hint; nothing depends on it
    auto* header = new (memory) BlockHeader;
    header->size_class = size_class;
    return header;
  }

  std::mutex mutex_;
  std::array<BlockHeader*, kClasses> free_{};
  PoolStats stats_;
};

}  // namespace

void* pool_allocate(std::size_t bytes) { return Pool::instance().allocate(bytes); }
void pool_free(void* memory) noexcept {
  if (memory != nullptr) Pool::instance().free(memory);
}
PoolStats pool_stats() { return Pool::instance().stats(); }
void pool_trim() { Pool::instance().trim(); }

// The count sits in front of the bytes, in the same pool block.
struct alignas(64) Buffer::Block {
  ~Block() {
    if (release) release();
  }
  std::atomic<std::size_t> owners{1};
  std::function<void()> release;  ///< of memory that is not the pool's
};

Buffer Buffer::allocate(std::size_t bytes) {
  Buffer buffer;
  buffer.block_ = new (pool_allocate(sizeof(Block) + bytes)) Block;
  buffer.data_ = reinterpret_cast<std::byte*>(buffer.block_ + 1);
  buffer.size_ = bytes;
  return buffer;
}

Buffer Buffer::copy_of(std::span<const std::byte> bytes) {
  Buffer buffer = allocate(bytes.size());
  if (!bytes.empty()) std::memcpy(buffer.data_, bytes.data(), bytes.size());
  return buffer;
}

Buffer Buffer::adopt(std::byte* data, std::size_t bytes, std::function<void()> release) {
  void* const memory = pool_allocate(sizeof(Block));
  Buffer buffer;
  buffer.block_ = new (memory) Block;
  buffer.block_->release = std::move(release);
  buffer.data_ = data;
  buffer.size_ = bytes;
  return buffer;
}

Buffer Buffer::borrow(std::span<const std::byte> bytes) {
  Buffer buffer;
  buffer.data_ = const_cast<std::byte*>(bytes.data());  // never written: mutable_data() demands a unique block
  buffer.size_ = bytes.size();
  return buffer;
}

Buffer Buffer::phantom(std::size_t bytes) {
  Buffer buffer;
  buffer.size_ = bytes;
  buffer.phantom_ = true;
  return buffer;
}

Buffer::Buffer(const Buffer& other) noexcept
    : block_(other.block_), data_(other.data_), size_(other.size_), phantom_(other.phantom_) {
  if (block_ != nullptr) block_->owners.fetch_add(1, std::memory_order_relaxed);
}

Buffer::~Buffer() {
  if (block_ == nullptr || block_->owners.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  block_->~Block();
  pool_free(block_);
}

bool Buffer::is_unique() const { return block_ != nullptr && block_->owners.load(std::memory_order_acquire) == 1; }

std::byte* Buffer::mutable_data() {
  assert(is_unique() || size_ == 0);
  return data_;
}

Buffer Buffer::slice(std::size_t offset, std::size_t length) const {
  assert(offset <= size_ && length <= size_ - offset);
  Buffer part = *this;
  if (part.data_ != nullptr) part.data_ += offset;
  part.size_ = length;
  return part;
}

Buffer Buffer::to_owned() const { return is_borrowed() ? copy_of(bytes()) : *this; }

}  // namespace tulle
