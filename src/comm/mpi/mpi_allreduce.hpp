// MPI's own allreduce, which the row mpi_native runs.
#pragma once

#include <mpi.h>

#include "tulle/comm/mpi.hpp"
#include "tulle/comm/transport.hpp"

namespace tulle {

class MpiAllreduce final : public NativeAllreduce {
 public:
  MpiAllreduce(MPI_Comm comm, const MpiOptions& options) : comm_(comm), options_(options) {}

  void start(Buffer input, Buffer result, std::uint64_t count, ValueType type, OpCode op, bool blocks) override;
  /// Several sums may be under way; it is true once all of them are made. Throws system where MPI fails.
  bool test() override;
  /// Gives up on sums that were not made; their buffers stay until the process ends. False if there were any.
  bool park();

 private:
  MPI_Comm comm_;
  const MpiOptions& options_;
  PoolVector<MPI_Request> requests_;
  PoolVector<Buffer> buffers_;  ///< of all sums that are under way
};

}  // namespace tulle
