// The parts of the binary format: its header, the entries of its table, its blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tulle/linear/csr_file.hpp"

namespace tulle::linear {

inline constexpr std::string_view kCsrMagic = "TULLECSR";
inline constexpr std::uint32_t kCsrVersion = 1;
inline constexpr std::size_t kCsrHeaderBytes = 64, kCsrEntryBytes = 40;

struct CsrHeader {
  std::uint32_t version = kCsrVersion;
  std::uint64_t rows = 0, features = 0, nonzeros = 0;
  std::uint64_t table_offset = 0, blocks = 0;
  std::uint32_t table_checksum = 0;
};

using CsrHeaderBytes = std::array<std::byte, kCsrHeaderBytes>;
CsrHeaderBytes encode_header(const CsrHeader& header);
/// REQUIRES: is_intact().
CsrHeader decode_header(const CsrHeaderBytes& bytes);
/// True where the header's own checksum holds.
bool is_intact(const CsrHeaderBytes& bytes);

std::vector<std::byte> encode_table(std::span<const CsrBlock> blocks);
CsrBlock decode_entry(std::span<const std::byte> entry);

/// The rows of block `number` from its bytes. Throws bad_input saying what is damaged.
Rows decode_block(const PositionalReader& reader, const CsrInfo& info, std::size_t number,
                  std::span<const std::byte> bytes);

}  // namespace tulle::linear
