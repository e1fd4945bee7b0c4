// What an operation is, in 64 bits: the fingerprint that every message carries.
//
// Threads: plain values and pure functions, for any thread; O(1).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tulle/base/value_type.hpp"
#include "tulle/stream/op.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// Numbers are part of the fingerprint: never renumber.
enum class OperationKind : std::uint8_t {
  split = 1,
  allreduce = 2,
  allgather = 3,
  reduce_scatter = 4,
  reduce = 5,
  broadcast = 6,
  give_bytes = 7,
  probe = 8,
  barrier = 9,
  combine = 10,
  gather_bytes = 11,
  broadcast_bytes = 12,
  fail_together = 13,
  gather_contributions = 14,
  agree = 15,  ///< of no message: a rank waits for agreements by itself
};
std::string_view to_string(OperationKind kind);

/// Everything that ranks must agree on before they exchange data. Each field has its bits in the fingerprint, so that a
/// rank can show what the other side is doing from the header of its first message. Of the options 12 bits are left and
/// of dimensions from 2^31 on 31, so that a call which differs there alone may look alike. The bits of the options
/// depend on the operation's number too: ranks that go on differing are told by one of their next calls.
struct CallSignature {
  OperationKind kind = OperationKind::allreduce;
  ValueType type = ValueType::f32;
  OpCode op = OpCode::sum;
  std::uint8_t algorithm = 0;  ///< number of the registry's row; 0 for none
  std::uint64_t dimension = 0;
  std::uint32_t options_hash = 0;        ///< of what has no field of its own: root, user op, ...
  std::string_view algorithm_name = {};  ///< not part of the fingerprint; must outlive this
  std::string_view (*name_of_algorithm)(std::uint8_t) = nullptr;  ///< to show the other side's
  std::uint64_t sequence = 0;  ///< of the operation on its channel; set when it is numbered

  std::uint64_t fingerprint() const;
  /// "allreduce of 1000 f32 by sum with ssar_recursive_double"
  std::string describe() const;
  /// The same for a fingerprint of another rank. Dimensions from 2^31 on are shown as a hash.
  std::string describe(std::uint64_t fingerprint) const;
  /// The names of the fields in which `fingerprint` differs.
  std::string differences(std::uint64_t fingerprint) const;
};

}  // namespace tulle
#pragma GCC visibility pop
