#include "tulle/comm/signature.hpp"

#include <fmt/format.h>

#include <array>

namespace tulle {
namespace {

// The fields of a fingerprint, from the lowest bit on.
struct Field {
  std::string_view name;
  int shift;
  int bits;

  std::uint64_t of(std::uint64_t fingerprint) const {
    return (fingerprint >> shift) & ((std::uint64_t{1} << bits) - 1);
  }
  std::uint64_t put(std::uint64_t value) const { return (value & ((std::uint64_t{1} << bits) - 1)) << shift; }
};
constexpr Field kKind{"kind", 0, 4}, kType{"type", 4, 4}, kOp{"op", 8, 4}, kAlgorithm{"algorithm", 12, 8},
    kOptions{"options", 20, 12}, kDimension{"dimension", 32, 32};
constexpr std::array kFields = {kKind, kType, kOp, kAlgorithm, kOptions, kDimension};

// Dimensions below 2^31 stand as they are; larger ones as 31 bits of a hash, marked by the top bit.
constexpr std::uint64_t kHashedDimension = std::uint64_t{1} << 31;

std::uint64_t compress_dimension(std::uint64_t dimension) {
  if (dimension < kHashedDimension) return dimension;
  return kHashedDimension | ((dimension * 0x9E3779B97F4A7C15u) >> 33);
}

// A sum of checksums' bits would do for one call. But equal bits of two ranks would then stay equal in all their calls,
// because checksums are linear, and replicas would part ways in silence.
std::uint64_t fold(std::uint32_t options_hash, std::uint64_t sequence) {
  std::uint64_t mixed = options_hash + sequence * 0x9E3779B97F4A7C15u;
  mixed = (mixed ^ (mixed >> 32)) * 0xD6E8FEB86659FD93u;
  mixed = (mixed ^ (mixed >> 32)) * 0xD6E8FEB86659FD93u;
  return mixed >> (64 - kOptions.bits);
}

std::string describe_dimension(std::uint64_t compressed) {
  if (compressed < kHashedDimension) return std::to_string(compressed);
  return fmt::format("2^31 or more (hash {:x})", compressed & (kHashedDimension - 1));
}

std::string_view name_of_op(std::uint64_t code) {
  switch (static_cast<OpCode>(code)) {
    case OpCode::sum: return "sum";
    case OpCode::prod: return "prod";
    case OpCode::min: return "min";
    case OpCode::max: return "max";
    case OpCode::bit_and: return "bit_and";
    case OpCode::bit_or: return "bit_or";
    case OpCode::bit_xor: return "bit_xor";
    case OpCode::user: return "a user op";
  }
  return "unknown";
}

std::string describe_parts(OperationKind kind, std::string_view dimension, ValueType type, std::uint64_t op,
                           std::string_view algorithm) {
  if (kind == OperationKind::gather_contributions) {
    return fmt::format("{} of {} {}", to_string(kind), dimension, to_string(type));
  }
  const bool has_payload = kind >= OperationKind::allreduce && kind <= OperationKind::broadcast;
  if (!has_payload) return std::string(to_string(kind));
  return fmt::format("{} of {} {} by {}{}{}", to_string(kind), dimension, to_string(type), name_of_op(op),
                     algorithm.empty() ? "" : " with ", algorithm);
}

}  // namespace

std::string_view to_string(OperationKind kind) {
  switch (kind) {
    case OperationKind::split: return "split";
    case OperationKind::allreduce: return "allreduce";
    case OperationKind::allgather: return "allgather";
    case OperationKind::reduce_scatter: return "reduce_scatter";
    case OperationKind::reduce: return "reduce";
    case OperationKind::broadcast: return "broadcast";
    case OperationKind::give_bytes: return "give_bytes";
    case OperationKind::probe: return "probe";
    case OperationKind::barrier: return "barrier";
    case OperationKind::combine: return "combine";
    case OperationKind::gather_bytes: return "gather_bytes";
    case OperationKind::broadcast_bytes: return "broadcast_bytes";
    case OperationKind::fail_together: return "fail_together";
    case OperationKind::gather_contributions: return "gather_contributions";
    case OperationKind::agree: return "agree";
  }
  return "unknown";
}

std::uint64_t CallSignature::fingerprint() const {
  return kKind.put(static_cast<std::uint64_t>(kind)) | kType.put(static_cast<std::uint64_t>(type)) |
         kOp.put(static_cast<std::uint64_t>(op)) | kAlgorithm.put(algorithm) |
         kOptions.put(fold(options_hash, sequence)) | kDimension.put(compress_dimension(dimension));
}

std::string CallSignature::describe() const {
  return describe_parts(kind, std::to_string(dimension), type, static_cast<std::uint64_t>(op), algorithm_name);
}

std::string CallSignature::describe(std::uint64_t other) const {
  const auto code = static_cast<std::uint8_t>(kAlgorithm.of(other));
  const std::string_view name = name_of_algorithm != nullptr ? name_of_algorithm(code) : "";  // this layer has no rows
  return describe_parts(static_cast<OperationKind>(kKind.of(other)), describe_dimension(kDimension.of(other)),
                        static_cast<ValueType>(kType.of(other)), kOp.of(other), name);
}

std::string CallSignature::differences(std::uint64_t other) const {
  std::string names;
  for (const Field& field : kFields) {
    if (field.of(other) == field.of(fingerprint())) continue;
    names += (names.empty() ? "" : ", ") + std::string(field.name);
  }
  return names;
}

}  // namespace tulle
