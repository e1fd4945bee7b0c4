/* Makes MPICH on UCX fit for many hosts on few cores; preloaded into each rank. How it works:
 *
 * Idle ranks yield. MPICH polls without pause, and on a machine with fewer cores than ranks a polling rank holds the
 * core that its peer needs. Here a poll that finds nothing gives the core away, as Open MPI's mpi_yield_when_idle does.
 *
 * Finalizing ranks answer. MPI_Finalize of MPICH 4.0 disconnects from its peers, which needs an answer of each,
 * and then blocks in a read of the process manager's socket until all ranks have come that far. A rank in that read
 * answers nobody, so the others may wait for it for ever (pmodels/mpich, pull request 6596; over TCP on a busy machine,
 * nearly every time). Here, from the first disconnect on, a blocking read of the thread that finalizes drives UCX until
 * there is something to read.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

static void *current_worker;
static __thread int finalizing;
static __thread int driving;

#define NEXT(name, result, ...)            \
  static result (*next)(__VA_ARGS__);      \
  if (!next) next = dlsym(RTLD_NEXT, name)

unsigned ucp_worker_progress(void *worker) {
  NEXT("ucp_worker_progress", unsigned, void *);
  current_worker = worker;
  unsigned events = next(worker);
  if (!events && !driving) sched_yield();
  return events;
}

void *ucp_disconnect_nb(void *endpoint) {
  NEXT("ucp_disconnect_nb", void *, void *);
  finalizing = 1;
  return next(endpoint);
}

void ucp_worker_destroy(void *worker) {
  NEXT("ucp_worker_destroy", void, void *);
  current_worker = 0;
  next(worker);
}

static void drive_until_readable(int descriptor) {
  struct pollfd wanted = {.fd = descriptor, .events = POLLIN};
  driving = 1;
  while (current_worker && poll(&wanted, 1, 1) == 0) {
    while (ucp_worker_progress(current_worker)) {
    }
  }
  driving = 0;
}

ssize_t read(int descriptor, void *buffer, size_t bytes) {
  NEXT("read", ssize_t, int, void *, size_t);
  if (finalizing && !driving && !(fcntl(descriptor, F_GETFL) & O_NONBLOCK)) drive_until_readable(descriptor);
  return next(descriptor, buffer, bytes);
}
