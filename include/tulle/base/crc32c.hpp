// CRC-32C (Castagnoli), by the CPU's instruction where it has one.
//
// Threads: pure functions, for any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#pragma GCC visibility push(default)
namespace tulle {

/// The checksum of `bytes` continuing from `previous`, so that parts can be checked in order. One pass.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous = 0);
/// The same by a table, a byte at a time: for CPUs without the instruction, and the reference in tests.
std::uint32_t crc32c_reference(std::span<const std::byte> bytes, std::uint32_t previous = 0);

}  // namespace tulle
#pragma GCC visibility pop
