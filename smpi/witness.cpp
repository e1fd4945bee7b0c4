// Runs the rows of the registry on SimGrid's SMPI, one after the other, and writes what each took in virtual time.
//
//   smpirun ... smpi_witness DIMENSION SEED INDEX_CODING DENSITY...
//
// The inputs are those of `tulle simulate` with the same flags. `tulle bench` cannot be used: it reads the machine's
// clock, and finds out by variables of mpirun's that it is one rank of many.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "stream/synthetic.hpp"
#include "tulle/collectives/collectives.hpp"
#include "tulle/comm/mpi.hpp"
#include "tulle/stream/reduce.hpp"

namespace {

struct Arguments {
  std::uint64_t dimension = 0;
  std::uint64_t seed = 1;
  std::string_view index_coding;
};

bool takes_part(const tulle::Algorithm& row) {
  return row.kind == tulle::OperationKind::allreduce && row.takes == tulle::Takes::stream &&
         row.needs == tulle::Needs::messages;
}

// Seconds of the slowest rank.
double run_once(tulle::Communicator& communicator, tulle::AnyStream input, const tulle::CallOptions& options) {
  tulle::AlgorithmState forgotten;
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  tulle::allreduce(communicator, input, options, &forgotten);
  const double mine = MPI_Wtime() - start;
  double slowest = 0;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

void run_density(tulle::Communicator& communicator, const Arguments& arguments, double density) {
  const tulle::AnyStream sparse = tulle::synthetic_stream(
      {.dimension = arguments.dimension,
       .nnz = static_cast<std::uint64_t>(density * static_cast<double>(arguments.dimension) + 0.5),
       .ranks = communicator.size(),
       .rank = communicator.rank(),
       .seed = arguments.seed});
  for (const tulle::Algorithm& row : tulle::registry()) {
    if (!takes_part(row)) continue;
    const bool gets_dense = row.input == tulle::Layout::dense;
    const double seconds =
        run_once(communicator, gets_dense ? tulle::to_dense(sparse, tulle::Op::sum()) : sparse,
                 {.algorithm = row.name, .index_coding = arguments.index_coding, .deadline_seconds = 1e6});
    if (communicator.rank() != 0) continue;
    std::printf("{\"algorithm\": \"%s\", \"ranks\": %d, \"density\": %.9g, \"seconds_median\": %.9g}\n",
                row.name.data(), communicator.size(), density, seconds);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const tulle::MpiSession session;
  tulle::Communicator communicator = tulle::mpi_communicator(MPI_COMM_WORLD);
  const Arguments arguments{std::strtoull(argv[1], nullptr, 10), std::strtoull(argv[2], nullptr, 10), argv[3]};
  for (int i = 4; i < argc; ++i) run_density(communicator, arguments, std::atof(argv[i]));
  return 0;
}
