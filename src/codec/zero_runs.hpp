// 3LC's zero-run encoding: 2 to 14 bytes of 121 become one byte, 243 to 255.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/ternary.hpp"

namespace tulle {

inline constexpr std::size_t kLongestRun = 14;
inline constexpr std::uint8_t kRunBase = 241;  // plus the run's length gives its byte

/// Takes quintets in any portions and writes at most as many bytes.
class ZeroRunWriter {
 public:
  explicit ZeroRunWriter(std::uint8_t* out) : out_(out) {}
  void put(std::span<const std::uint8_t> quintets);
  /// The end of what was written.
  std::uint8_t* finish();

 private:
  void put_rest(std::span<const std::uint8_t> quintets);
  void end_run();
  std::uint8_t* out_;
  std::size_t run_ = 0;
};

/// The same bytes as one ZeroRunWriter, made by several threads in parts of about `part` quintets. Returns their end.
/// Looks at every quintet twice, however long the runs are.
std::uint8_t* write_zero_runs(std::span<const std::uint8_t> quintets, std::size_t part, int threads, std::uint8_t* out);

/// Throws bad_message where the bytes are not exactly quintets_of(values.size()) quintets. Several threads count the
/// quintets of their parts first, so that each knows where its values begin.
void read_zero_runs(std::span<const std::byte> bytes, const QuintetTable& table, std::span<float> values, int threads);

}  // namespace tulle
