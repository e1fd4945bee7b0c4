#include "comm/mpi/mpi_allreduce.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/mpi/mpi_error.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

MPI_Datatype mpi_type_of(ValueType type) {
  switch (type) {
    case ValueType::f32: return MPI_FLOAT;
    case ValueType::f64: return MPI_DOUBLE;
    case ValueType::i32: return MPI_INT32_T;
    case ValueType::i64: return MPI_INT64_T;
    case ValueType::f16:
    case ValueType::bf16: break;
  }
  throw Error(ErrorKind::unsupported, fmt::format("MPI's allreduce has no type for {}", to_string(type)));
}

// MPI does not say what its own minimum of NaN is. As CombineMin and CombineMax: NaN wins.
template <class V, OpCode kOp>
void combine_floats(void* lower, void* higher, int* count, MPI_Datatype*) {
  const V* const from = static_cast<const V*>(lower);
  V* const to = static_cast<V*>(higher);
  for (int i = 0; i < *count; ++i) {
    const bool wins = kOp == OpCode::min ? from[i] < to[i] : to[i] < from[i];
    if (wins || from[i] != from[i]) to[i] = from[i];
  }
}

// Made once and kept until MPI ends.
template <class V, OpCode kOp>
MPI_Op float_op() {
  static const MPI_Op op = [] {
    MPI_Op created = MPI_OP_NULL;
    require_mpi("MPI_Op_create", MPI_Op_create(combine_floats<V, kOp>, 1, &created));
    return created;
  }();
  return op;
}

MPI_Op mpi_op_of(OpCode op, ValueType type) {
  if (op == OpCode::min && type == ValueType::f32) return float_op<float, OpCode::min>();
  if (op == OpCode::max && type == ValueType::f32) return float_op<float, OpCode::max>();
  if (op == OpCode::min && type == ValueType::f64) return float_op<double, OpCode::min>();
  if (op == OpCode::max && type == ValueType::f64) return float_op<double, OpCode::max>();
  switch (op) {
    case OpCode::sum: return MPI_SUM;
    case OpCode::prod: return MPI_PROD;
    case OpCode::min: return MPI_MIN;
    case OpCode::max: return MPI_MAX;
    case OpCode::bit_and: return MPI_BAND;
    case OpCode::bit_or: return MPI_BOR;
    case OpCode::bit_xor: return MPI_BXOR;
    case OpCode::user: break;
  }
  throw Error(ErrorKind::unsupported, "MPI's allreduce does not take user ops");
}

}  // namespace

void MpiAllreduce::start(Buffer input, Buffer result, std::uint64_t count, ValueType type, OpCode op, bool blocks) {
  require_mpi_is_running();
  const MPI_Datatype mpi_type = mpi_type_of(type);
  const MPI_Op mpi_op = mpi_op_of(op, type);
  const bool in_place = input.data() == result.data();
  const std::uint64_t chunk = options_.chunk_bytes / size_of(type);
  for (std::uint64_t first = 0; first < count; first += chunk) {
    const int length = static_cast<int>(std::min(chunk, count - first));
    const std::size_t offset = first * size_of(type);
    const void* const from = in_place ? MPI_IN_PLACE : input.data() + offset;
    std::byte* const to = result.data_for_landing() + offset;
    if (blocks) {
      require_mpi("MPI_Allreduce", MPI_Allreduce(from, to, length, mpi_type, mpi_op, comm_));
    } else {
      MPI_Request request = MPI_REQUEST_NULL;
      require_mpi("MPI_Iallreduce", MPI_Iallreduce(from, to, length, mpi_type, mpi_op, comm_, &request));
      requests_.push_back(request);
    }
  }
  if (requests_.empty()) return;
  buffers_.push_back(std::move(input));
  buffers_.push_back(std::move(result));
}

bool MpiAllreduce::test() {
  if (requests_.empty()) return true;
  require_mpi_is_running();
  int done = 0;
  require_mpi("MPI_Testall",
              MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE));
  if (done == 0) return false;
  requests_.clear();
  buffers_.clear();
  return true;
}

bool MpiAllreduce::park() {
  if (requests_.empty()) return true;
  new PoolVector<Buffer>(std::move(buffers_));  // deliberately never freed: MPI still reads and writes them
  return false;
}

}  // namespace tulle
