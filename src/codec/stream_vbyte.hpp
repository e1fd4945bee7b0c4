// The Stream VByte format (Lemire, Kurz and Rupp, 2018), byte for byte that of libstreamvbyte.
//
// Four numbers share a *control* byte, two bits each, the first in the lowest: 0 to 3 for a number of 1 to 4 bytes. All
// control bytes come first, then the *data*: the numbers' bytes without holes. That the lengths lie apart is what lets
// one shuffle spread four numbers. Debian's libstreamvbyte is built without those shuffles and reaches 140 to 230 M
// numbers/s here; hence kernels of our own, which the tests check against the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tulle {

/// Bytes that encoding may write beyond its result.
inline constexpr std::size_t kStreamVbyteSlack = 16;

constexpr std::size_t stream_vbyte_control_bytes(std::size_t count) { return (count + 3) / 4; }
/// Bytes of control and data. REQUIRES: fewer than 2^30 values.
std::size_t stream_vbyte_bytes(std::span<const std::uint32_t> values);
/// Returns the end of what it wrote. REQUIRES: room for 5 bytes a value and the slack.
std::byte* stream_vbyte_encode(std::span<const std::uint32_t> values, std::byte* out);

/// Bytes of data that the control bytes of `count` values announce; padding of the last one counts as well.
std::size_t stream_vbyte_data_bytes(std::span<const std::byte> control, std::size_t count);
/// REQUIRES: `data` holds at least the bytes that `control` announces; what follows them is not used but makes it
/// faster.
void stream_vbyte_decode(std::span<const std::byte> control, std::span<const std::byte> data,
                         std::span<std::uint32_t> values);

}  // namespace tulle
