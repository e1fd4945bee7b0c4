// CRC-32C (Castagnoli), by the CPU's instruction where it has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tulle {

/// The checksum of `bytes` continuing from `previous`, so that parts can be checked in order.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous = 0);
/// The table version, for CPUs without the instruction; the reference in tests.
std::uint32_t crc32c_reference(std::span<const std::byte> bytes, std::uint32_t previous = 0);

}  // namespace tulle
