/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels and NCCL's collectives on the same streams, two ranks: each takes what the one before has left, and nobody waits in
 * between; nor does who gives calls to a rank that was killed. FAKEGPU_TABLE is set.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

enum { RANKS = 2, COUNT = 4096, BUFFERS = 4, FLOAT = 7, SUM = 0 };
static const size_t bytes = COUNT * sizeof(float);

typedef struct { char internal[128]; } ncclUniqueId;
int ncclGetUniqueId(ncclUniqueId *id);
int ncclCommInitRank(void **comm, int nRanks, ncclUniqueId id, int rank);
int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, void *comm, CUstream stream);
int ncclCommDestroy(void *comm);
int ncclCommAbort(void *comm);

static struct shared {
  ncclUniqueId id;
  CUipcMemHandle handles[RANKS];
  atomic_int gone; /* rank 1 was killed */
} *shared;

static struct rank own;
static void *comm;
static float *buffers[BUFFERS];

static void *at(CUdeviceptr address) { return (void *)(uintptr_t)address; }

static void kernel(const char *name, int from, int to, CUstream stream) {
  CUfunction function;
  struct dyn_call call = {buffers[from], buffers[to], COUNT, SUM, 0, NULL, own.domain};
  void *arguments[] = {&call, &own.bulk};
  MUST(cuModuleGetFunction(&function, own.module, name));
  MUST(cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, stream, arguments, NULL));
}

static void nccl(int from, int to, CUstream stream) {
  MUST(ncclAllReduce(buffers[from], buffers[to], COUNT, FLOAT, SUM, comm, stream));
}

static float value(int i) { return (float)(1 + own.rank + i % 7); }
static float sum(int i) { return (float)(3 + 2 * (i % 7)); } /* of both ranks */

static void fill(void) {
  static float host[COUNT];
  for (int i = 0; i < COUNT; i++) host[i] = value(i);
  MUST(cuMemcpyHtoD_v2((CUdeviceptr)(uintptr_t)buffers[0], host, bytes));
  for (int b = 1; b < BUFFERS; b++) MUST(cuMemsetD8_v2((CUdeviceptr)(uintptr_t)buffers[b], 0xff, bytes));
}

static void holds(int buffer, float times) {
  static float host[COUNT];
  MUST(cuMemcpyDtoH_v2(host, (CUdeviceptr)(uintptr_t)buffers[buffer], bytes));
  for (int i = 0; i < COUNT; i++) {
    if (host[i] == times * sum(i)) continue;
    fprintf(stderr, "rank %d: element %d of buffer %d is %g, want %g\n", own.rank, i, buffer, host[i], times * sum(i));
    exit(1);
  }
}

static void in_a_row(CUstream s) {
  fill();
  kernel("oneShot_float", 0, 1, s);
  nccl(1, 2, s);
  kernel("twoShot_float", 2, 3, s);
  nccl(3, 1, s);
  MUST(cuMemsetD8Async((CUdeviceptr)(uintptr_t)buffers[2], 0, bytes, s));
  MUST(cuStreamSynchronize(s));
  holds(1, 8);
  holds(2, 0);
}

/* The same collective twice moves data twice where what it sends is not the same any more. */
static void equal_calls(CUstream s) {
  fill();
  nccl(0, 1, s);
  nccl(1, 2, s);
  kernel("bulk_float", 1, 1, s);
  nccl(1, 2, s);
  kernel("oneShot_float", 2, 3, s);
  MUST(cuCtxSynchronize());
  holds(2, 4);
  holds(3, 8);
}

static void in_two_streams(CUstream s, CUstream other) {
  CUevent first, second;
  MUST(cuEventCreate(&first, CU_EVENT_DISABLE_TIMING));
  MUST(cuEventCreate(&second, CU_EVENT_DISABLE_TIMING));
  fill();
  kernel("twoShot_float", 0, 1, s);
  MUST(cuEventRecord(first, s));
  MUST(cuStreamWaitEvent(other, first, 0));
  nccl(1, 2, other);
  MUST(cuEventRecord(second, other));
  MUST(cuStreamWaitEvent(s, second, 0));
  MUST(cuMemsetD8Async((CUdeviceptr)(uintptr_t)buffers[1], 0, bytes, s));
  kernel("oneShot_float", 2, 3, s);
  MUST(cuEventRecord(first, s));
  MUST(cuEventSynchronize(first));
  holds(1, 0);
  holds(3, 4);
}

static void in_a_graph(CUstream s) {
  CUgraph graph;
  CUgraphExec exec;
  MUST(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  kernel("oneShot_float", 0, 1, s);
  nccl(1, 2, s);
  kernel("bulk_float", 2, 3, s);
  MUST(cuStreamEndCapture(s, &graph));
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  fill();
  for (int i = 0; i < 3; i++) {
    MUST(cuGraphLaunch(exec, s));
    nccl(3, 0, s); /* what the graph sends next */
  }
  MUST(cuStreamSynchronize(s));
  holds(3, 4 * 16 * 16);
  MUST(cuGraphExecDestroy(exec));
  MUST(cuGraphDestroy(graph));
}

static void meet(void) {
  nccl(0, 1, own.streams[0]);
  MUST(cuStreamSynchronize(own.streams[0]));
}

static void open_rank(int rank) {
  CUdeviceptr memory[RANKS];
  alarm(60);
  rank_open(&own, rank, RANKS);
  MUST(cuIpcGetMemHandle(&shared->handles[rank], own.shared));
  MUST(ncclCommInitRank(&comm, RANKS, shared->id, rank)); /* all are there when it is back */
  memory[rank] = own.shared;
  MUST(cuIpcOpenMemHandle_v2(&memory[1 - rank], shared->handles[1 - rank], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  rank_connect(&own, memory);
  for (int b = 0; b < BUFFERS; b++) buffers[b] = (float *)at(own.in) + b * COUNT;
}

static void among_kernels(int rank) {
  open_rank(rank);
  for (int i = 0; i < 10; i++) {
    in_a_row(own.streams[i % STREAMS]);
    equal_calls(own.streams[0]);
    in_two_streams(own.streams[1], own.streams[0]);
    in_a_graph(own.streams[0]);
  }
  meet();
  MUST(ncclCommDestroy(comm));
  rank_close(&own);
}

/* No call waits for the rank that is gone, on either stream and whatever it is given; what waits for it are the streams, until the
 * communicator is aborted. */
static void with_one_killed(int rank) {
  CUevent event;
  CUstream s, other;
  open_rank(rank);
  s = own.streams[0], other = own.streams[1];
  MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  fill();
  meet();
  if (rank == 1) raise(SIGKILL);
  while (!atomic_load(&shared->gone)) usleep(1000);
  alarm(20);
  nccl(0, 1, s);
  kernel("oneShot_float", 1, 2, s);
  nccl(2, 3, s);
  nccl(2, 3, other);
  MUST(cuMemsetD8Async((CUdeviceptr)(uintptr_t)buffers[2], 0, bytes, s));
  MUST(cuEventRecord(event, other));
  MUST(cuStreamWaitEvent(s, event, 0));
  MUST(cuMemcpyDtoDAsync_v2((CUdeviceptr)(uintptr_t)buffers[1], (CUdeviceptr)(uintptr_t)buffers[2], bytes, s));
  for (int i = 0; i < 100; i++, usleep(1000)) WANT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  *own.stop = 1; /* of our kernels */
  MUST(ncclCommAbort(comm));
  for (int i = 0; i < STREAMS; i++) MUST(cuStreamSynchronize(own.streams[i]));
  MUST(cuEventQuery(event));
  for (int b = 0; b < BUFFERS; b++) MUST(cuMemsetD8_v2((CUdeviceptr)(uintptr_t)buffers[b], 0, bytes));
}

/* Until all that the stream was given is over, which this rank asks after and does not wait for: so it is no place in the program behind which
 * equal calls would move data again. */
static void ask(CUstream s) {
  CUevent event;
  MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  MUST(cuEventRecord(event, s));
  while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) usleep(100);
}

static void sees(const char *what, float want) {
  if (buffers[1][0] == want) return;
  fprintf(stderr, "rank %d, %s: %g, want %g\n", own.rank, what, buffers[1][0], want);
  exit(1);
}

/* What goes wrong with a call that repeats the one before is seen also when that one's data has been moved, and ranks of which one asks meanwhile
 * and the other does not exchange equally often. */
static void repeated(int rank) {
  CUstream s;
  MUST(setenv("FAKEGPU_FAULT", "skip:rank=1,from=0,to=1;wrong:rank=1,from=2,to=3;skip:rank=1,from=4,to=5", 1));
  open_rank(rank);
  s = own.streams[0];
  fill();
  for (int call = 0; call < 5; call++) {
    nccl(0, 1, s);
    if (rank == 0) continue;
    ask(s);
    if (call == 0) CHECK(buffers[1][0] != buffers[1][0]); /* nothing was written */
    else if (call == 2) CHECK(buffers[1][0] != sum(0));
    else sees(call == 1 ? "a call behind one that was skipped" : "a call behind one that was wrong", sum(0));
  }
  nccl(1, 2, s);
  MUST(cuStreamSynchronize(s));
  holds(1, 1);
  holds(2, 2);
  meet();
  MUST(ncclCommDestroy(comm));
  rank_close(&own);
}

static int run(void (*as)(int rank), int killed) {
  int failed = 0, status;
  pid_t pids[RANKS];
  MUST(ncclGetUniqueId(&shared->id));
  for (int rank = 0; rank < RANKS; rank++) {
    if ((pids[rank] = fork()) != 0) continue;
    as(rank);
    exit(0);
  }
  for (int rank = RANKS - 1; rank >= 0; rank--) {
    failed |= waitpid(pids[rank], &status, 0) < 0 || (rank == killed ? !WIFSIGNALED(status) : status != 0);
    if (rank == killed) atomic_store(&shared->gone, 1);
  }
  return failed;
}

int main(void) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  return run(among_kernels, -1) || run(with_one_killed, 1) || run(repeated, -1);
}
