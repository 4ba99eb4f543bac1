/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank that has joined a record of its own, and a publisher of plans for it. Each story runs in a process of its own.
 */
#ifndef DYN_CHOOSE_RIG_H
#define DYN_CHOOSE_RIG_H

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

#define COMM_ID 0xc0ffeeull
#define ALLREDUCE 4
#define BYTES ((size_t)1 << 20)
#define BUCKET 20

static void *context;
static struct dyn_comm *comm;
static struct publisher daemon_;

static inline void join(bool profiler) {
  if (profiler) {
    check(dyn_comm_open(COMM_ID, 1, 1, 0, test_log), "open");
    dyn_process_ref();
  }
  check(ncclTunerPlugin_v6.init(&context, COMM_ID, 1, 1, test_log, NULL, NULL) == 0, "init");
  comm = context;
  check(comm->record, "not joined: %s", test_last_message());
  check(publisher_open(&daemon_, COMM_ID), "publisher");
}

/* To the last call of the present epoch, with calls that no entry knows. */
static inline void finish_epoch(void) {
  while (comm->callsLeft) test_call(context, 0, 1, 0);
}

static inline struct dyn_plan one_entry(uint32_t id, uint32_t base, uint32_t numTrials, const uint32_t *trials) {
  struct dyn_plan plan;
  plan_clear(&plan);
  plan.numEntries = 2;
  plan.index[ALLREDUCE][BUCKET] = 1;
  plan.entries[1] = (struct dyn_entry){.id = id, .base = base, .numTrials = numTrials};
  for (uint32_t i = 0; i < numTrials && i < DYN_NUM_TRIALS; i++) plan.entries[1].trials[i] = trials[i];
  return plan;
}

static inline void publish(struct dyn_plan plan) {
  finish_epoch();
  check(publisher_publish(&daemon_, &plan), "no buffer is free");
}

static inline void expect(uint32_t want, uint32_t marked) {
  uint32_t got = test_call(context, ALLREDUCE, BYTES, marked);
  check(got == want, "chose %x, want %x", got, want);
}

static const uint32_t trials[] = {ACTION(0, 0, 2), ACTION(1, 1, 0), 0, ACTION(1, 2, 16)};

static inline void run(const char *name, void (*test)(void)) {
  int status;
  pid_t child = fork();
  if (child == 0) {
    test();
    exit(0);
  }
  check(waitpid(child, &status, 0) == child && status == 0, "%s: status %x", name, status);
  check(test_count_files("comm-") + test_count_files("ring-") == 0, "%s left files", name);
  printf("{\"choose\":\"%s\"}\n", name);
}

#endif
