# Sourced by scripts that start ranks: sets tulle to the program, launch to what starts $ranks ranks of it over shared
# memory (empty where it has no MPI), and start to what goes between the two.
tulle=${TULLE:-build/release/bin/tulle}
if [ ! -x "$tulle" ]; then
  echo "$(basename "$0"): $tulle is not there; run 'make build' first" >&2
  exit 1
fi

# Under mpirun standard error is a pipe, so the program cannot see for itself whether a person looks at it. Two pipes
# to one terminal would tear each other's lines apart: then the ranks write both to one.
start=()
if [ -t 1 ] && [ -t 2 ]; then start=(sh -c 'exec "$0" "$@" 2>&1'); fi
if [ -t 2 ]; then
  export TULLE_PROGRESS=1
  COLUMNS=$(tput cols 2>/dev/null || echo 80)
  export COLUMNS
fi

# Only the mpirun of the MPI that the program is linked with can start it; Open MPI is the default on Debian.
mpirun=
# (What grep reads comes from no pipe: it may close one before the other end is done, which counts as a failure.)
if grep -q 'mpi|tcp|threads' <<< "$("$tulle" bench allreduce --help)"; then
  family=openmpi
  if grep -q libmpich <<< "$(ldd "$tulle")"; then family=mpich; fi
  mpirun=$(command -v "mpirun.$family" || command -v mpirun || true)
fi
launch=()
if [ -n "$mpirun" ]; then
  launch=("$mpirun" -n "$ranks")
  if grep -qE 'OpenRTE|Open MPI' <<< "$("$mpirun" --version 2>&1)"; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    # Ranks may outnumber cores: they must not be bound to one, nor spin for long.
    launch+=(--oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca btl_base_warn_component_unused 0)
  fi
  export UCX_LOG_LEVEL=${UCX_LOG_LEVEL:-error}
fi
