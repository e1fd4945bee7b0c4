#!/bin/sh
# Stands before each rank: leaves a mark that it has started, so that a launch that hangs is told from a long run.
: > "$TULLE_LAB_MARKS/${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"
[ -z "$TULLE_LAB_PRELOAD" ] || export LD_PRELOAD="$TULLE_LAB_PRELOAD${LD_PRELOAD:+:$LD_PRELOAD}"
exec "$@"
