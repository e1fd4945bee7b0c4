#!/usr/bin/env bash
# pkg_config_mpi.sh prefix directory compiler shared|static: a user's program on MPI built by hand, with no compiler
# wrapper. TULLE_MPIRUN starts three ranks.
set -euo pipefail
PKG_CONFIG_PATH=$(dirname "$(find "$1" -name tulle-mpi.pc)")
export PKG_CONFIG_PATH
program=$2/pkg_config_mpi_example_$4
cat > "$program.cpp" <<'CPP'
#include <cstdio>
#include <vector>

#include <tulle/comm/mpi.hpp>
#include <tulle/tulle.hpp>

int main() {
  const tulle::MpiSession session;
  tulle::Communicator comm = tulle::mpi_communicator(MPI_COMM_WORLD);
  const std::vector<std::uint32_t> indices = {7};
  const std::vector<float> values = {1};
  auto stream = tulle::Stream<float>::from_sorted<std::uint32_t>(1000, indices, values);
  tulle::allreduce(comm, stream);
  if (comm.rank() == 0) std::printf("index 7: %g\n", stream.to_vector()[7]);
}
CPP
read -ra flags < <(pkg-config --cflags tulle-mpi)
if [ "$4" = shared ]; then
  read -ra libraries < <(pkg-config --libs tulle-mpi)
  libraries+=("-Wl,-rpath,$(dirname "$PKG_CONFIG_PATH")")
else
  read -ra libraries < <(pkg-config --static --libs tulle-mpi | sed -E 's/-l(tulle(_mpi)?)( |$)/-l:lib\1.a /g')
fi
"$3" "${flags[@]}" "$program.cpp" "${libraries[@]}" -o "$program"
read -ra launcher <<< "$TULLE_MPIRUN"
"${launcher[@]}" "$program" | grep 'index 7: 3'
