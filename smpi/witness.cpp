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

#include "patient_transport.hpp"
#include "stream/synthetic.hpp"
#include "tulle/collectives/collectives.hpp"
#include "tulle/stream/reduction.hpp"

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

double largest(double mine) {
  double all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return all;
}

// A barrier would let ranks go at different times. SMPI's clock is the same for all, so that they can agree on one.
double start_together() {
  constexpr double kLeadSeconds = 0.01;
  const double start = largest(MPI_Wtime()) + kLeadSeconds;
  const timespec lead{0, static_cast<long>((start - MPI_Wtime()) * 1e9)};
  nanosleep(&lead, nullptr);
  return start;
}

// Seconds until the last rank is done.
double run_once(tulle::Communicator& communicator, tulle::AnyStream input, const tulle::CallOptions& options) {
  tulle::AlgorithmState forgotten;
  const double start = start_together();
  tulle::allreduce(communicator, input, options, &forgotten);
  return largest(MPI_Wtime()) - start;
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
  tulle::Communicator communicator(std::make_unique<PatientTransport>(MPI_COMM_WORLD));
  const Arguments arguments{std::strtoull(argv[1], nullptr, 10), std::strtoull(argv[2], nullptr, 10), argv[3]};
  for (int i = 4; i < argc; ++i) run_density(communicator, arguments, std::atof(argv[i]));
  return 0;
}
