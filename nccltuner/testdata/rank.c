/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of the test against the daemon's publisher: the shipped epoch.h and plan.h on a record in a file.
 * Arguments: file, number of this rank, seed. Prints one line an epoch: its plan's version, 0: NCCL's defaults. Ends when
 * the daemon's heartbeat moves, which the test does once.
 * Exit status 1: the record is broken; 2: a plan in force is not valid; 3: it was overwritten; 4: the file is no record.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/epoch.h"
#include "plugin/plan.h"

static uint64_t seed;

/* xorshift64, Marsaglia 2003 */
static uint64_t draw(uint64_t below) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed % below;
}

static uint64_t slowest(const struct dyn_epoch_memory *m) {
  uint64_t least = UINT64_MAX;
  for (uint32_t i = 0; i < m->nRanks; i++) {
    uint64_t position = dyn_word_load(&m->positions[i * m->positionStride]);
    if (position < least) least = position;
  }
  return least >> 8;
}

int main(int argc, char **argv) {
  struct stat st;
  int fd = argc == 4 ? open(argv[1], O_RDWR) : -1;
  if (fd < 0 || fstat(fd, &st) != 0) return 4;
  struct dyn_record *record = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (record == MAP_FAILED || record->header.magic != DYN_RECORD_MAGIC) return 4;
  struct dyn_rank *self = (struct dyn_rank *)(record + 1) + atoi(argv[2]);
  seed = strtoull(argv[3], NULL, 10) * 2 + 1;

  self->pid = (uint32_t)getpid();
  self->startTime = 1; /* nobody sweeps here */
  __atomic_fetch_add(&record->joined, 1, __ATOMIC_SEQ_CST);

  struct dyn_epoch_memory memory = dyn_epoch_memory_of(record, record->nRanks);
  static struct dyn_plan plan;
  uint8_t inForce = 0;
  for (uint64_t e = 1; dyn_word_load(&record->header.heartbeat) == 0; e++) {
    uint64_t ahead = 1 + draw(50);
    while (e > slowest(&memory) + ahead && dyn_word_load(&record->header.heartbeat) == 0) sched_yield();
    if (inForce && memcmp(&plan, &record->plans[inForce - 1], sizeof plan) != 0) return 3;
    struct dyn_epoch step;
    dyn_epoch_begin(&step, e);
    do {
      if (draw(500) == 0) sched_yield();
    } while (!dyn_epoch_step(&step, &memory));
    if (step.broken) return 1;
    if (step.slot && step.slot != inForce) {
      memcpy(&plan, &record->plans[step.slot - 1], sizeof plan);
      if (!dyn_plan_valid(&plan)) return 2;
    }
    inForce = step.slot;
    __atomic_store_n(&self->position, dyn_epoch_position(e, inForce), __ATOMIC_SEQ_CST);
    printf("%llu\n", inForce ? (unsigned long long)plan.version : 0ull);
  }
  __atomic_store_n(&self->position, UINT64_MAX, __ATOMIC_SEQ_CST);
  return 0;
}
