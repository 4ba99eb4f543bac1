/* SPDX-License-Identifier: Apache-2.0
 *
 * How many threads move bytes (movers.c). One that waits for a CPU again and again takes others theirs, NCCL's and the program's among them; then
 * there is one less, down to none, and another try later.
 */
#include "mover_count.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "forward.h"

#define USUAL 2 /* four ranks over the loopback, 16 CPUs: 1.45 of plain NCCL, with one 1.38, with three 1.24 (docs/design/operation.md) */
#define OTHERS 2 /* of a rank's threads that may be busy beside them: the program's, and NCCL's */

#define LOOK_NS 20000000
#define CROWDED 4 /* waited for more than a fourth of what it ran, ... */
#define WAKE_NS 100000 /* ... but for each time that it was woken: an idle CPU of a virtual machine takes tens of us to come back */
/* Looks add up: one behind which a thread has waited counts for so many without. Where two threads are one too many (four ranks, 12 CPUs) 43 of
 * 100 looks are such; in a DDP step that they make a fourth faster (16 CPUs) 1 to 8 of 1000 (docs/figures/gpu-movers-waits-2026-11-24.jsonl). */
#define STRAIN_OF_ONE 4
#define STRAIN_MOST 12
#define PAUSE_LEAST_NS UINT64_C(1000000000)
#define PAUSE_MOST_NS (64 * PAUSE_LEAST_NS)
#define SETTLED_NS (10 * PAUSE_LEAST_NS)

uint64_t dyn_movers_clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A file's first numbers; how many there were. */
static int numbers(const char *path, const char *format, long long *first, long long *second) {
  FILE *file = fopen(path, "re");
  if (file == NULL) return 0;
  int got = fscanf(file, format, first, second);
  fclose(file);
  return got;
}

/* That this process may use at once. Its threads are NCCL's, too, which keeps them near a GPU. */
static int cpus(void) {
  cpu_set_t set;
  int count = sched_getaffinity(getpid(), sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  long long quota, period;
  if (numbers("/sys/fs/cgroup/cpu.max", "%lld %lld", &quota, &period) == 2 ||
      (numbers("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "%lld", &quota, NULL) == 1 && numbers("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "%lld", &period, NULL) == 1))
    if (quota > 0 && period > 0 && quota / period < count) count = (int)(quota / period);
  return count;
}

/* Of this host that share them: who starts ranks says how many, and the plugin has met those of its communicators; else each GPU may have one. */
static int ranks(void) {
  static const char *const names[] = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"};
  int count = 0, met = (int)atomic_load(&dynamiccl_preload.ranksHere);
  for (size_t i = 0; i < sizeof names / sizeof *names && count <= 0; i++)
    if (getenv(names[i]) != NULL) count = atoi(getenv(names[i]));
  if (count < met) count = met;
  if (count > 0) return count;
  DIR *gpus = opendir("/proc/driver/nvidia/gpus");
  if (gpus == NULL) return 1;
  for (struct dirent *entry; (entry = readdir(gpus)) != NULL;) count += entry->d_name[0] != '.';
  closedir(gpus);
  return count > 0 ? count : 1;
}

static bool fixed; /* the user says how many */

int dyn_movers_wanted(void) {
  const char *given = getenv("DYNAMICCL_SOCKET_THREADS");
  fixed = given != NULL && *given >= '0' && *given <= '9';
  if (fixed) return atoi(given) < DYN_MOVERS ? atoi(given) : DYN_MOVERS;
  int left = cpus() / ranks() - OTHERS;
  return left <= 0 ? 0 : left < USUAL ? left : USUAL;
}

static _Atomic int count, inUse;
static _Atomic unsigned met; /* ranksHere, when count was made */
static _Atomic bool changing; /* by one thread; another's word can wait */
static _Atomic uint64_t moreNs; /* when one more may be tried */
static uint64_t changedNs, pauseNs = PAUSE_LEAST_NS;

void dyn_movers_are(int threads) {
  atomic_store(&count, threads);
  atomic_store(&inUse, threads);
}

/* More ranks than were known of: none of them waits for a thread that is too many. */
static void fewer(unsigned here) {
  if (atomic_exchange(&changing, true)) return;
  int wanted = fixed ? atomic_load(&count) : dyn_movers_wanted();
  atomic_store(&met, here);
  if (wanted < atomic_load(&count)) atomic_store(&count, wanted);
  if (wanted < atomic_load(&inUse)) atomic_store(&inUse, wanted);
  atomic_store(&changing, false);
}

int dyn_movers_now(uint64_t nowNs) {
  unsigned here = atomic_load_explicit(&dynamiccl_preload.ranksHere, memory_order_relaxed);
  if (here != atomic_load_explicit(&met, memory_order_relaxed)) fewer(here);
  int used = atomic_load_explicit(&inUse, memory_order_relaxed);
  if (used >= atomic_load_explicit(&count, memory_order_relaxed) || nowNs < atomic_load_explicit(&moreNs, memory_order_relaxed) || atomic_exchange(&changing, true)) return used;
  used = atomic_load(&inUse);
  if (used < atomic_load(&count)) {
    atomic_store(&inUse, ++used);
    changedNs = nowNs;
    atomic_store(&moreNs, nowNs + PAUSE_LEAST_NS);
  }
  atomic_store(&changing, false);
  return used;
}

static void one_less(uint64_t nowNs) {
  if (atomic_exchange(&changing, true)) return;
  int used = atomic_load(&inUse);
  if (used > 0 && nowNs > changedNs + 2 * LOOK_NS) { /* not what was seen before it changed last, perhaps since nowNs */
    pauseNs = nowNs - changedNs > SETTLED_NS ? PAUSE_LEAST_NS : 2 * pauseNs < PAUSE_MOST_NS ? 2 * pauseNs : PAUSE_MOST_NS;
    atomic_store(&inUse, used - 1);
    changedNs = nowNs;
    atomic_store(&moreNs, nowNs + pauseNs);
  }
  atomic_store(&changing, false);
}

void dyn_mover_begins(struct dyn_mover_wait *wait) { *wait = (struct dyn_mover_wait){.file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)}; }

void dyn_mover_worked(struct dyn_mover_wait *wait, uint64_t nowNs) {
  char text[80], *behind;
  if (fixed || nowNs - wait->lookedNs < LOOK_NS) return;
  ssize_t n = pread(wait->file, text, sizeof text - 1, 0); /* nanoseconds run, nanoseconds waited, how often */
  bool first = wait->lookedNs == 0;
  wait->lookedNs = nowNs;
  if (n <= 0) return; /* this kernel does not say */
  text[n] = 0;
  uint64_t ran = strtoull(text, &behind, 10), waited = strtoull(behind, NULL, 10);
  if (!first && waited - wait->waitedNs > (ran - wait->ranNs) / CROWDED + wait->woken * WAKE_NS) wait->strain += STRAIN_OF_ONE;
  else if (wait->strain > 0) wait->strain--;
  if (wait->strain >= STRAIN_MOST) {
    wait->strain = 0;
    one_less(nowNs);
  }
  wait->woken = 0;
  wait->ranNs = ran;
  wait->waitedNs = waited;
}
