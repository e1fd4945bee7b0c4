// What an operation is, in 64 bits: the fingerprint that every message carries.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tulle/base/value_type.hpp"
#include "tulle/stream/op.hpp"

namespace tulle {

/// Numbers are part of the fingerprint: never renumber.
enum class OperationKind : std::uint8_t {
  split = 1,
  allreduce = 2,
  allgather = 3,
  reduce_scatter = 4,
  reduce = 5,
  broadcast = 6,
  profile = 7,  ///< rank 0 tells what it read from a file
  probe = 8,
};
std::string_view to_string(OperationKind kind);

/// Everything that ranks must agree on before they exchange data. Field by field in the fingerprint, so that a rank
/// can show what the other side is doing from the header of its first message.
struct CallSignature {
  OperationKind kind = OperationKind::allreduce;
  ValueType type = ValueType::f32;
  OpCode op = OpCode::sum;
  std::uint8_t algorithm = 0;          ///< number of the registry's row; 0 for none
  std::uint64_t dimension = 0;
  std::uint32_t options_hash = 0;      ///< of what has no field of its own: root, user op, ...
  std::string_view algorithm_name;     ///< not part of the fingerprint
  std::string_view (*name_of_algorithm)(std::uint8_t) = nullptr;  ///< to show the other side's

  std::uint64_t fingerprint() const;
  /// "allreduce of 1000 f32 by sum with ssar_recursive_double"
  std::string describe() const;
  /// The same for a fingerprint of another rank. Dimensions from 2^31 on are shown as a hash.
  std::string describe(std::uint64_t fingerprint) const;
  /// The names of the fields in which `fingerprint` differs.
  std::string differences(std::uint64_t fingerprint) const;
};

}  // namespace tulle
