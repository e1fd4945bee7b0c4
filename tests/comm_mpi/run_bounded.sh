#!/bin/bash
# run_bounded.sh SECONDS COMMAND...
#
# Runs COMMAND and gives its exit code. After SECONDS it prints the stacks of all processes that COMMAND started, kills
# them and fails: a hang is a failure with a stack, not a wait.
set -u
limit=$1
shift

# All processes under pid $1, itself included. mpirun gives its ranks process groups of their own, so a group is not enough.
family() {
  echo "$1"
  local child
  for child in $(cat /proc/"$1"/task/*/children 2>/dev/null || ps -o pid= --ppid "$1" 2>/dev/null); do family "$child"; done
}

print_stack() {
  local pid=$1
  echo "---- stack of $pid: $(tr '\0' ' ' 2>/dev/null </proc/"$pid"/cmdline)"
  if command -v eu-stack >/dev/null; then
    timeout 10 eu-stack -p "$pid" 2>&1
  elif command -v gdb >/dev/null; then
    timeout 20 gdb -p "$pid" -batch -nx -ex 'set pagination off' -ex 'thread apply all backtrace 30' 2>/dev/null |
      grep -E '^(#|Thread)'
  else
    echo "(install gdb or elfutils to see it)"
  fi
}

setsid "$@" &
job=$!
trap 'kill -KILL $(family "$job") 2>/dev/null' INT TERM

deadline=$((SECONDS + limit))
while kill -0 "$job" 2>/dev/null; do
  if ((SECONDS >= deadline)); then
    echo "run_bounded: no end after $limit s: $*"
    processes=$(family "$job")
    for process in $processes; do print_stack "$process"; done
    kill -KILL $processes 2>/dev/null
    kill -KILL -- "-$job" 2>/dev/null
    exit 124
  fi
  sleep 0.05
done
wait "$job"
