/* SPDX-License-Identifier: Apache-2.0
 *
 * A program with several GPUs in one process, as nccl-tests are without MPI: AllReduce of floats on all of them.
 *   one_process HOW RANKS BYTES CALLS
 * HOW: group (-g N: one thread, each call for all GPUs within a group; communicators of ncclCommInitRank in a group), init-all (the
 * same with ncclCommInitAll), threads (-t N: one for each GPU, no groups); and what is to be left alone: twice (two calls of each
 * communicator in a group), unlike (a second communicator of the same GPUs, with calls of another size in the same group), stream
 * (likewise, equal calls on the same streams), ranks (likewise, on other streams).
 * For each line that it reads it makes so many calls, waits, compares every element and tells how many are wrong; before that, if
 * the line begins with a plus, one more communicator of the same GPUs, which gets no calls; if it begins with a slash, calls of a fourth of the bytes.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rig.h"

enum { MOST_RANKS = 8, FLOAT = 7, SUM = 0, KINDS = 2, MOST_IDLE = 8 };
typedef struct { char internal[128]; } ncclUniqueId;
int ncclGetUniqueId(ncclUniqueId *id);
int ncclCommInitRank(void **comm, int nRanks, ncclUniqueId id, int rank);
int ncclCommInitAll(void **comms, int n, const int *devices);
int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, void *comm, CUstream stream);
int ncclCommDestroy(void *comm);
int ncclGroupStart(void);
int ncclGroupEnd(void);

static struct gpu {
  CUcontext context;
  void *comms[KINDS];
  CUstream streams[KINDS];
  CUdeviceptr send, recv[KINDS];
  long wrong;
} gpus[MOST_RANKS];
static int nRanks, kinds = 1, calls, times = 1;
static size_t counts[KINDS];
static int sharedStream;
static void *idle[MOST_IDLE][MOST_RANKS];
static int numIdle;

static CUstream stream_of(const struct gpu *g, int kind) { return g->streams[sharedStream ? 0 : kind]; }

static float value(int rank, size_t i) { return (float)(1 + rank + (int)(i % 7)); }

static void open_gpu(int rank) {
  struct gpu *g = &gpus[rank];
  MUST(cuDevicePrimaryCtxRetain(&g->context, rank));
  MUST(cuCtxSetCurrent(g->context));
  size_t most = counts[kinds - 1] > counts[0] ? counts[kinds - 1] : counts[0];
  float *host = malloc(most * sizeof *host);
  CHECK(host != NULL);
  for (size_t i = 0; i < most; i++) host[i] = value(rank, i);
  MUST(cuMemAlloc_v2(&g->send, most * sizeof *host));
  MUST(cuMemcpyHtoD_v2(g->send, host, most * sizeof *host));
  for (int k = 0; k < kinds; k++) {
    MUST(cuMemAlloc_v2(&g->recv[k], most * sizeof *host));
    MUST(cuStreamCreate(&g->streams[k], CU_STREAM_NON_BLOCKING));
  }
  free(host);
}

static void init_ranks(void **comms) {
  ncclUniqueId id;
  MUST(ncclGetUniqueId(&id));
  MUST(ncclGroupStart());
  for (int r = 0; r < nRanks; r++) {
    MUST(cuCtxSetCurrent(gpus[r].context));
    MUST(ncclCommInitRank(&comms[r], nRanks, id, r));
  }
  MUST(ncclGroupEnd());
}

static void make_comms(int kind, int initAll) {
  void *comms[MOST_RANKS];
  if (initAll) MUST(ncclCommInitAll(comms, nRanks, NULL));
  else init_ranks(comms);
  for (int r = 0; r < nRanks; r++) gpus[r].comms[kind] = comms[r];
}

static void one_call(const struct gpu *g, int kind) {
  MUST(ncclAllReduce((void *)g->send, (void *)g->recv[kind], counts[kind], FLOAT, SUM, g->comms[kind], stream_of(g, kind)));
}

/* The current device is the last one's throughout, as in a program that sets none. */
static void in_groups(void) {
  for (int i = 0; i < calls; i++) {
    MUST(ncclGroupStart());
    for (int r = 0; r < nRanks; r++)
      for (int k = 0; k < kinds; k++)
        for (int t = 0; t < times; t++) one_call(&gpus[r], k);
    MUST(ncclGroupEnd());
  }
}

static void wait_for(struct gpu *g) {
  MUST(cuCtxSetCurrent(g->context));
  for (int k = 0; k < kinds; k++) {
    MUST(cuStreamSynchronize(stream_of(g, k)));
    float *host = malloc(counts[k] * sizeof *host);
    CHECK(host != NULL);
    MUST(cuMemcpyDtoH_v2(host, g->recv[k], counts[k] * sizeof *host));
    for (size_t i = 0; i < counts[k]; i++) {
      float sum = 0;
      for (int r = 0; r < nRanks; r++) sum += value(r, i);
      g->wrong += host[i] != sum;
    }
    memset(host, 0, counts[k] * sizeof *host);
    MUST(cuMemcpyHtoD_v2(g->recv[k], host, counts[k] * sizeof *host));
    free(host);
  }
}

static void *in_its_thread(void *gpu) {
  struct gpu *g = gpu;
  MUST(cuCtxSetCurrent(g->context));
  for (int i = 0; i < calls; i++) one_call(g, 0);
  wait_for(g);
  return NULL;
}

static void in_threads(void) {
  pthread_t threads[MOST_RANKS];
  for (int r = 0; r < nRanks; r++) CHECK(pthread_create(&threads[r], NULL, in_its_thread, &gpus[r]) == 0);
  for (int r = 0; r < nRanks; r++) pthread_join(threads[r], NULL);
}

int main(int argc, char **argv) {
  char line[16];
  if (argc != 5) return fprintf(stderr, "one_process HOW RANKS BYTES CALLS\n"), 2;
  const char *how = argv[1];
  int threads = strcmp(how, "threads") == 0;
  nRanks = atoi(argv[2]);
  calls = atoi(argv[4]);
  CHECK(nRanks >= 2 && nRanks <= MOST_RANKS && calls > 0);
  sharedStream = strcmp(how, "stream") == 0;
  times = strcmp(how, "twice") == 0 ? 2 : 1;
  kinds = sharedStream || strcmp(how, "unlike") == 0 || strcmp(how, "ranks") == 0 ? 2 : 1;
  counts[0] = counts[1] = strtoull(argv[3], NULL, 10) / sizeof(float);
  if (strcmp(how, "unlike") == 0) counts[1] *= 4;
  MUST(cuInit(0));
  for (int r = 0; r < nRanks; r++) open_gpu(r);
  for (int k = 0; k < kinds; k++) make_comms(k, strcmp(how, "init-all") == 0);
  while (fgets(line, sizeof line, stdin) != NULL) {
    long wrong = 0;
    alarm(60);
    if (line[0] == '+') {
      CHECK(numIdle < MOST_IDLE);
      init_ranks(idle[numIdle++]);
    }
    size_t whole = counts[0];
    if (line[0] == '/') counts[0] /= 4;
    if (threads) in_threads();
    else in_groups();
    for (int r = 0; r < nRanks && !threads; r++) wait_for(&gpus[r]);
    counts[0] = whole;
    for (int r = 0; r < nRanks; r++) wrong += gpus[r].wrong;
    printf("%ld\n", wrong);
    fflush(stdout);
  }
  for (int r = 0; r < nRanks; r++)
    for (int k = 0; k < kinds; k++) MUST(ncclCommDestroy(gpus[r].comms[k]));
  for (int i = 0; i < numIdle; i++)
    for (int r = 0; r < nRanks; r++) MUST(ncclCommDestroy(idle[i][r]));
  return 0;
}
