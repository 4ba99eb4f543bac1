/* SPDX-License-Identifier: Apache-2.0
 *
 * What all communicators of a process share: the ring of samples and NCCL's activation mask.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm.h"
#include "nccl_profiler_abi.h"
#include "ring.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dyn_process process;
static int users;   /* under lock */
/* Under lock: tried, with or without success. An error is said once and not for every communicator. */
static bool opened;
static char path[PATH_MAX];

static size_t ring_bytes(void) { return sizeof(struct dyn_ring) + DYN_RING_CELLS * sizeof(struct dyn_sample); }

static void open_ring(dyn_logger log) {
  const char *directory = dyn_directory(log);
  uint32_t pid = (uint32_t)getpid();
  uint64_t startTime = dyn_own_start();
  if (!directory || startTime == 0) return;
  dyn_sweep_rings(log);
  snprintf(path, sizeof path, "%s/ring-%u-%" PRIu64 ".shm", directory, pid, startTime);
  /* No other process has this name: a file of it is this one's, left by a copy of the library that was closed. */
  unlink(path);
  int fd = dyn_create_file(path, ring_bytes());
  void *memory = fd < 0 ? MAP_FAILED : mmap(NULL, ring_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    dyn_say(log, DYN_LOG_WARN, "cannot create %s (%zu bytes): %s: no samples from this process; %s", path, ring_bytes(), strerror(errno),
            dyn_create_remedy(errno));
    if (fd >= 0) unlink(path), close(fd);
    return;
  }
  close(fd);
  struct dyn_ring *ring = memory;
  process.cells = (struct dyn_sample *)(ring + 1);
  for (uint64_t i = 0; i < DYN_RING_CELLS; i++) process.cells[i].cell = i;
  ring->header.version = DYN_ABI_VERSION;
  ring->header.pidNamespace = dyn_pid_namespace();
  ring->header.sizeBytes = ring_bytes();
  ring->pid = pid;
  ring->numCells = DYN_RING_CELLS;
  ring->startTime = startTime;
  __atomic_store_n(&ring->header.magic, DYN_RING_MAGIC, __ATOMIC_RELEASE);
  process.ring = ring;
}

/* Since the last round of the preload's thread. */
static void tell_traffic(void) {
  if (process.preload != NULL) dyn_traffic_tell(&process.preload->traffic, process.ring);
}

static void close_ring(bool unlinkFile) {
  if (process.ring) {
    if (unlinkFile) tell_traffic(), unlink(path);
    munmap(process.ring, ring_bytes());
  }
  process.ring = NULL;
  process.cells = NULL;
  opened = false;
}

struct dyn_process *dyn_process_get(dyn_logger log) {
  pthread_mutex_lock(&lock);
  if (!opened) {
    opened = true;
    open_ring(log);
  }
  pthread_mutex_unlock(&lock);
  return &process;
}

void dyn_process_ref(void) {
  pthread_mutex_lock(&lock);
  users++;
  pthread_mutex_unlock(&lock);
}

void dyn_process_unref(void) {
  pthread_mutex_lock(&lock);
  /* In the child of a fork the count starts anew, and the parent's communicators may be released there. */
  if (users > 0 && --users == 0) close_ring(true);
  pthread_mutex_unlock(&lock);
}

void dyn_process_fork_prepare(void) { pthread_mutex_lock(&lock); }

void dyn_process_fork_parent(void) { pthread_mutex_unlock(&lock); }

void dyn_process_fork_child(void) {
  close_ring(false);
  users = 0;
  atomic_store(&process.samplingComms, 0);
  /* Guards of threads that are not in the child would never leave; the one that refuses stays. */
  if (process.mask) {
    int refused = atomic_load(&process.refused) && !process.eventTimed ? DYN_GUARD_ONE : 0;
    atomic_store(process.mask, (atomic_load(process.mask) & DYN_MASK_EVENTS) | refused);
  }
  if (process.preload) { /* its thread, which could hold the lock, is not in the child */
    process.preload->roundLock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    process.preload->ring = NULL;
    atomic_store(&process.preload->timing, 0);
    dyn_watch_forget(&process.preload->watched, NULL);
    dyn_traffic_tell(&process.preload->traffic, NULL); /* it is the parent's */
  }
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

void dyn_process_exit(void) {
  if (pthread_mutex_trylock(&lock) != 0) return;
  if (process.ring) tell_traffic(), unlink(path);
  pthread_mutex_unlock(&lock);
}

void dyn_mask_update(struct dyn_process *p, int alive) {
  atomic_int *mask = p->mask;
  if (!mask) return;
  int chain = atomic_load_explicit(&p->chainMask, memory_order_relaxed), guarded = ncclProfileKernelCh & ~chain;
  int want = atomic_load_explicit(&p->heldMask, memory_order_relaxed), sampled = 0;
  if (alive && p->ring) {
    if (atomic_load_explicit(&p->samplingComms, memory_order_relaxed) > 0)
      sampled = (int)__atomic_load_n(&p->ring->wantMask, __ATOMIC_RELAXED);
    else if (p->eventTimed && atomic_load_explicit(&p->preload->watched.used, memory_order_relaxed) > 0)
      sampled = (int)__atomic_load_n(&p->ring->wantMask, __ATOMIC_RELAXED) & ncclProfileColl; /* says what ran */
  }
  want |= sampled;
  if (p->eventTimed) atomic_store_explicit(&p->preload->timing, (sampled & ncclProfileKernelCh) != 0, memory_order_relaxed);
  want &= ~atomic_load_explicit(&p->refused, memory_order_relaxed) & DYN_MASK_EVENTS;
  struct dyn_mask_words words = dyn_process_words(p);
  words.mask = mask;
  if (atomic_load_explicit(words.take, memory_order_relaxed) != guarded) atomic_store(words.take, guarded);
  dyn_mask_write(&words, want | chain, guarded);
}

void dyn_tell_ranks(const struct dyn_comm *comm) {
  if (!comm->process || !comm->process->preload) return;
  atomic_uint *most = &comm->process->preload->ranksHere;
  unsigned joined = __atomic_load_n(&comm->record->joined, __ATOMIC_RELAXED), before = atomic_load(most);
  while (before < joined && !atomic_compare_exchange_weak(most, &before, joined)) continue;
}

int dyn_times_refused(void) {
  return !process.eventTimed && atomic_load_explicit(&process.refused, memory_order_relaxed) != 0;
}

bool dyn_times_wanted(const struct dyn_process *p) {
  return p->ring && __atomic_load_n(&p->ring->wantMask, __ATOMIC_RELAXED) & ncclProfileKernelCh;
}

struct dyn_preload *dyn_process_preload(void) { return process.preload; }

int dyn_event_timed(void) { return process.eventTimed; }

int dyn_ring_put(struct dyn_process *p, const struct dyn_sample *sample) {
  return p->ring != NULL && dyn_ring_store(p->ring, sample);
}
