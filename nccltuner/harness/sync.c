/* SPDX-License-Identifier: Apache-2.0
 *
 * How far the ranks of a run are: one cache line a rank in a shared mapping. Stands in for what a real job has anyway:
 * no kernel of a collective ends before all ranks called it, and creating a communicator is a rendezvous.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"

enum { SLOT_FREE, SLOT_RUNNING, SLOT_FINISHED, SLOT_LEFT, SLOT_STOPPED };

struct slot {
  _Alignas(64) _Atomic uint64_t calls; /* begun */
  _Atomic uint64_t barrier;            /* barriers reached */
  _Atomic uint32_t state;
  _Atomic uint32_t pid;
  _Atomic uint64_t start; /* start time of pid: a pid alone may be somebody else's by now */
};

struct sync {
  int first, end; /* ranks that are waited for */
  struct slot *slots;
};

static const uint64_t startTimeoutNs = 60000000000u; /* for a rank that was never started */

/* Field 22 of /proc/PID/stat; 0: no such process, or one that is dead and not yet waited for. */
static uint64_t process_start(uint32_t pid) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%u/stat", pid);
  FILE *file = fopen(path, "r");
  if (file == NULL) return 0;
  size_t n = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[n] = '\0';
  char *p = strrchr(text, ')'), state;
  unsigned long long start;
  if (p == NULL || sscanf(p + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                          &state, &start) != 2)
    return 0;
  return state == 'Z' || state == 'X' ? 0 : start;
}

struct sync *sync_open(const char *path, int nRanks, int first, int count, char *error, size_t errorSize) {
  size_t size = (size_t)nRanks * sizeof(struct slot);
  int flags = MAP_SHARED | (path == NULL ? MAP_ANONYMOUS : 0), fd = -1;
  struct stat info;
  if (path != NULL) {
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &info) != 0 || (info.st_size == 0 && ftruncate(fd, (off_t)size) != 0)) {
      snprintf(error, errorSize, "sync file %s: %s", path, strerror(errno));
      if (fd >= 0) close(fd);
      return NULL;
    }
    if (info.st_size != 0 && (size_t)info.st_size != size) {
      snprintf(error, errorSize, "sync file %s: has %lld bytes and not %zu, so it belongs to another run: name a new "
               "file", path, (long long)info.st_size, size);
      close(fd);
      return NULL;
    }
  }
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (fd >= 0) close(fd);
  struct sync *sync = malloc(sizeof *sync);
  if (memory == MAP_FAILED || sync == NULL) {
    snprintf(error, errorSize, "sync memory: %s", strerror(errno));
    return NULL;
  }
  *sync = (struct sync){first, first + count, memory};
  return sync;
}

int sync_enter(struct sync *sync, int rank, char *error, size_t errorSize) {
  struct slot *slot = &sync->slots[rank];
  uint32_t was = SLOT_FREE, pid = (uint32_t)getpid();
  atomic_store(&slot->start, process_start(pid));
  atomic_store(&slot->pid, pid);
  if (atomic_compare_exchange_strong(&slot->state, &was, SLOT_RUNNING)) return 0;
  snprintf(error, errorSize, "rank %d has run already with this sync file: name a new one for every run", rank);
  return -1;
}

void sync_progress(struct sync *sync, int rank, uint64_t calls) {
  atomic_store_explicit(&sync->slots[rank].calls, calls, memory_order_release);
}

void sync_leave(struct sync *sync, int rank, int result) {
  atomic_store(&sync->slots[rank].state, result == 0                ? SLOT_FINISHED
                                         : result == EXIT_PEER_DIED ? SLOT_STOPPED
                                                                    : SLOT_LEFT);
}

uint32_t sync_process(const struct sync *sync, int rank) { return atomic_load(&sync->slots[rank].pid); }

static void nap(unsigned round) {
  if (round < 32) sched_yield();
  else usleep(round < 1000 ? 50 : 1000);
}

/* Why a peer cannot progress any more; NULL: it can, or has finished. */
static const char *fate_of(const struct slot *slot, uint64_t waitedNs) {
  uint32_t state = atomic_load(&slot->state), pid = atomic_load(&slot->pid);
  const char *fate = NULL;
  if (state == SLOT_LEFT) fate = "left";
  else if (state == SLOT_STOPPED) fate = "stopped";
  else if (state == SLOT_FREE && waitedNs > startTimeoutNs) fate = "was never started";
  else if (state == SLOT_RUNNING && process_start(pid) != atomic_load(&slot->start)) fate = "died";
  return atomic_load(&slot->state) == state ? fate : NULL; /* it may have finished and gone between the two looks */
}

/* The peer because of which nobody gets on: one that left or died, else one that stopped because of another that has
 * been seen already. 0: none. waitedNs: since when this rank waits. */
static int find_dead(const struct sync *sync, int rank, const char *what, uint64_t waitedNs, char *error,
                     size_t errorSize) {
  const struct slot *cause = NULL;
  const char *fate = NULL;
  for (int r = sync->first; r < sync->end; r++) {
    const char *found = r == rank ? NULL : fate_of(&sync->slots[r], waitedNs);
    if (found == NULL || (cause != NULL && strcmp(found, "stopped") == 0)) continue;
    if (cause != NULL && strcmp(fate, "stopped") != 0) continue;
    cause = &sync->slots[r];
    fate = found;
  }
  if (cause == NULL) return 0;
  snprintf(error, errorSize, "rank %d (pid %u) %s after %llu calls; rank %d waited for it %s and stops",
           (int)(cause - sync->slots), atomic_load(&cause->pid), fate, (unsigned long long)atomic_load(&cause->calls),
           rank, what);
  return -1;
}

/* Waits until done is true for every other rank. */
static int wait_for(struct sync *sync, int rank, int (*done)(const struct slot *, uint64_t), uint64_t target,
                    int except, const char *what, char *error, size_t errorSize) {
  uint64_t began = 0, checked = 0;
  int r = sync->first;
  for (unsigned round = 0;; round++) {
    while (r < sync->end && (r == rank || r == except || done(&sync->slots[r], target))) r++;
    if (r == sync->end) return 0;
    nap(round);
    if (round % 64 != 63) continue;
    uint64_t now = host_now_ns();
    if (began == 0) began = checked = now;
    if (now - checked < 100000000u) continue;
    checked = now;
    if (find_dead(sync, rank, what, now - began, error, errorSize) != 0) return -1;
  }
}

static int far_enough(const struct slot *slot, uint64_t calls) {
  return atomic_load_explicit(&slot->calls, memory_order_acquire) >= calls;
}

static int reached(const struct slot *slot, uint64_t number) { return atomic_load(&slot->barrier) >= number; }

int sync_wait(struct sync *sync, int rank, uint64_t call, uint64_t window, char *error, size_t errorSize) {
  if (window == 0 || call < window) return 0;
  return wait_for(sync, rank, far_enough, call - window + 1, -1, "to catch up", error, errorSize);
}

int sync_barrier(struct sync *sync, int rank, uint64_t number, int except, char *error, size_t errorSize) {
  atomic_store(&sync->slots[rank].barrier, number);
  return wait_for(sync, rank, reached, number, except, "to create a communicator", error, errorSize);
}
