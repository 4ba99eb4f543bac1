/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tuner half tells the daemon about CUDA graphs: choices that went into one, and that kernels are not timed.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

#define COMM_ID 0xcab7ull
#define ALLREDUCE 4
#define BYTES ((size_t)1 << 20)
#define BUCKET 20
#define CHOSEN (uint32_t)ACTION(1, 2, 16)

static void *context;
static struct dyn_comm *comm;

static void join(void) {
  check(dyn_comm_open(COMM_ID, 1, 1, 0, test_log), "open");
  dyn_process_ref();
  check(ncclTunerPlugin_v6.init(&context, COMM_ID, 1, 1, test_log, NULL, NULL) == 0, "init");
  comm = context;
  check(comm->record, "not joined: %s", test_last_message());
}

/* To the last call of the present epoch, with calls that no entry knows. */
static void finish_epoch(void) {
  while (comm->callsLeft) test_call(context, 0, 1, 0);
}

/* In force from the next call on. */
static void publish(void) {
  struct publisher daemon_;
  struct dyn_plan plan;
  plan_clear(&plan);
  plan.numEntries = 2;
  plan.index[ALLREDUCE][BUCKET] = 1;
  plan.entries[1] = (struct dyn_entry){.id = 1, .base = CHOSEN};
  check(publisher_open(&daemon_, COMM_ID) && publisher_publish(&daemon_, &plan), "publish");
  publisher_close(&daemon_);
  finish_epoch();
}

static int pop(struct dyn_process *process, struct dyn_sample *out) {
  struct dyn_sample *cell = &process->cells[process->ring->tail % DYN_RING_CELLS];
  if (cell->cell != process->ring->tail + 1) return 0;
  *out = *cell;
  cell->cell = process->ring->tail++ + DYN_RING_CELLS;
  return 1;
}

/* What goes into a graph is told once and at once, sampling or not, while a daemon lives. */
static void captured(void) {
  struct dyn_sample s;
  join();
  struct dyn_process *process = dyn_process_get(test_log);
  publish();
  test_call(context, ALLREDUCE, BYTES, 0);
  check(!comm->sampling && !pop(process, &s), "a call that is not captured is told");
  comm->captured = 1;
  uint64_t seq = comm->seq;
  check(test_call(context, ALLREDUCE, BYTES, 0) == CHOSEN, "captured calls are chosen like others");
  check(pop(process, &s) && s.commId == comm->commId && s.seq == seq && s.bytes == BYTES, "%lu", s.seq);
  check(s.flags == (DYN_SAMPLE_UNTIMED | DYN_SAMPLE_CAPTURED) && s.action == CHOSEN, "%x %x", s.flags, s.action);
  check(s.planVersion == 1 && s.collective == ALLREDUCE && s.algorithm == 255 && s.protocol == 255 && s.channels == 0 &&
        s.signalNs == 0 && s.nRanks == comm->nRanks && s.rank == comm->rank, "what is not known is said");
  test_call(context, ALLREDUCE, 1 << 12, 0);
  check(pop(process, &s) && s.action == 0 && s.bytes == 1 << 12, "a size that nothing is planned for");
  test_call(context, ALLREDUCE, 0, 0);
  check(!pop(process, &s), "an empty call is none");
  comm->captured = 0;
  test_call(context, ALLREDUCE, BYTES, 0);
  check(!pop(process, &s), "the graph has ended");
  for (int epoch = 0; epoch <= 4096; epoch++) finish_epoch(), test_call(context, ALLREDUCE, BYTES, 0);
  comm->captured = 1;
  test_call(context, ALLREDUCE, BYTES, 0);
  check(!pop(process, &s), "nobody would read it");
  ncclTunerPlugin_v6.finalize(context);
}

static void refused(void) {
  join();
  check(!(comm->self->flags & DYN_RANK_NO_TIMES), "flags %x", comm->self->flags);
  atomic_store(&dyn_process_get(test_log)->refused, 64);
  finish_epoch();
  test_call(context, ALLREDUCE, BYTES, 0);
  check(comm->self->flags & DYN_RANK_NO_TIMES, "found out after it joined: flags %x", comm->self->flags);
  ncclTunerPlugin_v6.finalize(context);
  join();
  check(comm->self->flags & DYN_RANK_NO_TIMES, "known when it joins: flags %x", comm->self->flags);
  ncclTunerPlugin_v6.finalize(context);
}

static void run(const char *name, void (*test)(void)) {
  int status;
  pid_t child = fork();
  if (child == 0) {
    test();
    exit(0);
  }
  check(waitpid(child, &status, 0) == child && status == 0, "%s: status %x", name, status);
  printf("{\"graphs\":\"%s\"}\n", name);
}

int main(void) {
  test_directory();
  run("captured", captured);
  run("refused", refused);
  test_remove_directory();
  return 0;
}
