#!/bin/sh
# What mpirun calls in the place of ssh: agent.sh [-options] HOST COMMAND..., where HOST is a namespace of the lab.
# Like ssh it joins the words of the command and hands them to a shell there.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0" && eval "$1"' "$host" "$*"
