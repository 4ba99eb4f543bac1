/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups that one rank alone makes of its calls, as NCCL has it where a communicator has no other collective in them, and groups that have
 * calls of several communicators, not the same on all ranks: who runs a call, and which comes first of two that ranks share, must be the
 * same on all of them. Included by test_lsa.c.
 */
#ifndef DYN_GROUP_STEPS_H
#define DYN_GROUP_STEPS_H

/* Of rank 0's group: what stands beside the call. */
enum { SEND_BEHIND, SEND_BEFORE, SEND_APART_BEHIND, SEND_APART_BEFORE, OTHERS_BEHIND, OTHERS_BEFORE, SEND_AND_OTHERS_BEFORE, EMPTY_BEFORE, GATHER_BEHIND, NUM_BESIDE };

static struct step besides;

/* NCCL's kernels come behind what is in the stream, and may wait for a peer that has the call before them. */
static int at_the_end(void) {
  if (strcmp(fake->name, "ncclGroupEnd") != 0) return 0;
  wait_for_all();
  compare(&besides, 0, true);
  return 0;
}

static void send_one(CUstream stream) { CHECK(find("ncclSend")(0, 1, FLOAT32, 1, COMM, (uintptr_t)stream, 0, 0, 0) == 0); }

static void beside(int what) {
  struct step others = besides, empty = besides;
  empty.count = 0;
  group_start();
  if (what == SEND_AND_OTHERS_BEFORE || what == OTHERS_BEFORE) CHECK(issue(&others, 1, OTHER_COMM) == 0);
  if (what == SEND_AND_OTHERS_BEFORE || what == SEND_BEFORE) send_one(besides.stream);
  if (what == SEND_APART_BEFORE) send_one(streams[1]);
  if (what == EMPTY_BEFORE) CHECK(issue(&empty, 0, COMM) == 0 && find("ncclReduce")(1, 2, 0, FLOAT32, SUM, 0, COMM, (uintptr_t)besides.stream, 0) == 0);
  CHECK(issue(&besides, 0, COMM) == 0);
  if (what == OTHERS_BEHIND) CHECK(issue(&others, 1, OTHER_COMM) == 0);
  if (what == SEND_BEHIND) send_one(besides.stream);
  if (what == SEND_APART_BEHIND) send_one(streams[1]);
  if (what == GATHER_BEHIND) CHECK(find("ncclGather")(1, 2, 1, FLOAT32, 0, COMM, (uintptr_t)besides.stream, 0, 0) == 0);
  fake->inside = at_the_end;
  group_end();
  fake->inside = succeed;
}

static void alone(int slot, uintptr_t comm) {
  struct step s = besides;
  CHECK(issue(&s, slot, comm) == 0);
}

static void uneven(void) {
  begin();
  for (int what = 0; what < 2 * NUM_BESIDE; what++) {
    besides = (struct step){.collective = what < NUM_BESIDE ? ALL_REDUCE : ALL_TO_ALL, .count = 100, .stream = streams[0], .action = LSA(0, 1), .seed = (uint64_t)what};
    planned = besides.action;
    fill(&besides, 0);
    meet();
    unsigned before = asked;
    if (rank == 0) beside(what % NUM_BESIDE);
    else alone(0, COMM);
    CHECK(asked == before + 1, "case %d: asked %u times", what, asked - before);
    wait_for_all();
    compare(&besides, 0, true);
    meet();
  }
}

/* The streams of a send and of a collective wait for each other, as NCCL has it: the kernel takes what was put before the send, on the
 * send's stream; what comes behind the send there has the kernel's result; and what comes behind the collective has what NCCL ran. */
enum { WORD_BEFORE, WORD_BEHIND, NUM_WORDS };
static uint32_t words[NUM_WORDS];

static struct {
  CUresult (*copy)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
  CUresult (*hold)(CUstream stream, const uint32_t *word);
  CUresult (*wait)(CUstream stream, CUevent event, unsigned flags);
  CUresult (*info)(CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **before, size_t *count);
} driver;

static void find_driver(void) {
  void *from = dlopen(driverPath, RTLD_NOW);
  *(void **)&driver.copy = dlsym(from, "cuMemcpyDtoDAsync_v2");
  *(void **)&driver.hold = dlsym(from, "fakegpu_hold");
  *(void **)&driver.wait = dlsym(from, "cuStreamWaitEvent");
  *(void **)&driver.info = dlsym(from, "cuStreamGetCaptureInfo_v2");
  CHECK(driver.copy != NULL && driver.hold != NULL && driver.wait != NULL && driver.info != NULL);
}

static void copy(const float *to, const float *from, CUstream stream) {
  CHECK(driver.copy((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, besides.count * sizeof *to, stream) == 0);
}

/* Until then the stream stands still. */
static void hold(CUstream stream, int word) { CHECK(driver.hold(stream, &words[word]) == 0); }

/* What waits for nothing else has run by then. */
static void let_go(int word) {
  usleep(30000);
  __atomic_store_n(&words[word], 1, __ATOMIC_RELEASE);
}

/* What NCCL runs is on the send's stream alone: at the group's end, or, where it does not block, later. */
static bool blocks;
static int sends_apart(void) {
  if (strcmp(fake->name, "ncclGroupEnd") == 0 && !blocks) return 7;
  if (strcmp(fake->name, blocks ? "ncclGroupEnd" : "ncclCommGetAsyncError") != 0) return 0;
  copy(in[2], out[0], streams[1]);
  hold(streams[1], WORD_BEHIND);
  copy(out[2], in[3], streams[1]);
  return 0;
}

static void apart_of(bool sendFirst, uint64_t seed) {
  besides.seed = seed;
  words[WORD_BEFORE] = words[WORD_BEHIND] = 0;
  fill(&besides, 0);
  for (size_t i = 0; i < besides.count; i++) {
    out[1][i] = in[0][i]; /* and comes to in[0] late */
    if (rank == 0) in[0][i] = -2;
    in[3][i] = (float)i;
    out[2][i] = out[3][i] = in[2][i] = -1;
  }
  meet();
  if (rank == 0) {
    hold(streams[1], WORD_BEFORE);
    copy(in[0], out[1], streams[1]);
    group_start();
    if (sendFirst) send_one(streams[1]);
    alone(0, COMM);
    if (!sendFirst) send_one(streams[1]);
    fake->inside = sends_apart;
    CHECK(find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == (blocks ? 0 : 7));
    if (!blocks) CHECK(async_error() == 0);
    fake->inside = succeed;
    copy(out[3], out[2], streams[0]);
    let_go(WORD_BEFORE);
  }
  meet();
  if (rank == 1) alone(0, COMM); /* what waits for the kernel waits until now */
  else let_go(WORD_BEHIND);
  wait_for_all();
  compare(&besides, 0, true);
  for (size_t i = 0; i < besides.count && rank == 0; i++) {
    CHECK(in[2][i] == wanted(&besides, i), "behind the send: element %zu of the result is %g and not %g", i, in[2][i], wanted(&besides, i));
    CHECK(out[3][i] == (float)i, "behind the collective: element %zu of what NCCL moved is %g", i, out[3][i]);
  }
  meet();
}

static int has_kernel_before(void) {
  int status = 0;
  size_t nodes = 0;
  uint64_t id;
  CUgraph graph;
  const CUgraphNode *before;
  if (strcmp(fake->name, "ncclGroupEnd") != 0) return 0;
  CHECK(driver.info(streams[1], &status, &id, &graph, &before, &nodes) == 0 && status == 1 && nodes == 1);
  return 0;
}

/* Both streams in one capture. */
static void apart_in_graph(void) {
  CUevent fork;
  CUgraph graph;
  CUgraphExec exec;
  fill(&besides, 0);
  CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
  CHECK(cuda.cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING) == 0 && cuda.cuEventRecord(fork, streams[0]) == 0 && driver.wait(streams[1], fork, 0) == 0);
  capturing = true;
  group_start();
  alone(0, COMM);
  send_one(streams[1]);
  fake->inside = has_kernel_before;
  group_end();
  fake->inside = succeed;
  capturing = false;
  CHECK(cuda.cuStreamEndCapture(streams[0], &graph) == 0 && cuda.cuGraphInstantiateWithFlags(&exec, graph, 0) == 0);
  meet();
  CHECK(cuda.cuGraphLaunch(exec, streams[0]) == 0);
  wait_for_all();
  compare(&besides, 0, true);
  meet();
}

static void apart(void) {
  begin();
  find_driver();
  besides = (struct step){.collective = ALL_REDUCE, .count = 100, .stream = streams[0], .action = LSA(0, 1)};
  planned = besides.action;
  for (uint64_t n = 0; n < 4; n++) {
    blocks = n < 2;
    apart_of(n % 2 != 0, n);
  }
  apart_in_graph();
}

__attribute__((unused)) static void *abort_it(void *nothing) {
  last_call()->inside = succeed;
  usleep(200000);
  CHECK(find("ncclCommAbort")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  preload->device->close(lsa);
  return nothing;
}

/* The communicator is stopped while a group holds a call of it, and another thread aborts it while the group's end says why, which takes long where
 * nobody reads. */
__attribute__((unused)) static void aborted_in_group(void) {
  begin();
  besides = (struct step){.collective = ALL_REDUCE, .count = 100, .stream = streams[0], .action = LSA(0, 1)};
  planned = besides.action;
  char page[4096];
  int was = dup(STDERR_FILENO), ends[2];
  CHECK(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, (int)sizeof page) == sizeof page);
  memset(page, '.', sizeof page);
  pthread_t aborts;
  group_start();
  alone(0, COMM);
  send_one(streams[1]);
  find("ncclCommShrink")(COMM, 0, 0, 0, 0, 1, 0, 0, 0);
  CHECK(write(ends[1], page, sizeof page) == sizeof page && dup2(ends[1], STDERR_FILENO) >= 0);
  CHECK(pthread_create(&aborts, NULL, abort_it, NULL) == 0);
  int result = find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0);
  CHECK(pthread_join(aborts, NULL) == 0 && dup2(was, STDERR_FILENO) >= 0);
  CHECK(result == 6, "%d", result);
  meet();
}

/* Two communicators with kernels, on one stream: in the same order on both ranks, whatever these call first and have beside them. The second
 * one made has the lower number, so the order is not that in which they were made. */
static void of_two(void) {
  begin();
  struct dyn_lsa *first = lsa;
  besides = (struct step){.collective = ALL_REDUCE, .count = 1, .stream = streams[0], .action = LSA(0, 1)};
  make_as(COMM_ID - 1);
  fake->inside = do_bind;
  alone(0, OTHER_COMM);
  fake->inside = succeed;
  planned = besides.action;
  for (int n = 0; n < 16; n++) {
    bool turned = (n >> rank & 1) != 0, third = (n >> (rank + 2) & 1) != 0; /* of NCCL's, before all and by itself */
    for (int i = 0; i < 2; i++) fill(&besides, i);
    meet();
    group_start();
    if (third) alone(2, THIRD_COMM);
    for (int i = 0; i < 2; i++) alone(i ^ turned, (i ^ turned) == 0 ? COMM : OTHER_COMM);
    if (rank == 0 && n % 3 == 0) send_one(streams[0]);
    group_end();
    wait_for_all();
    for (int i = 0; i < 2; i++) compare(&besides, i, true);
    meet();
  }
  preload->device->close(lsa);
  preload->device->close(first);
}

/* What is refused of one communicator, whose kernels have given up, takes nothing of another one's with it that stands in the group. */
static void refused_beside(void) {
  begin();
  struct dyn_lsa *first = lsa;
  struct step s = {.collective = ALL_REDUCE, .count = 100, .stream = streams[0], .action = LSA(0, 1)};
  make();
  fake->inside = do_bind;
  alone(0, OTHER_COMM);
  fake->inside = succeed;
  planned = s.action;
  find("ncclCommShrink")(COMM, 0, 0, 0, 0, 1, 0, 0, 0); /* aborts its calls */
  for (uint64_t n = 0; n < 2; n++) {
    s.seed = n;
    fill(&s, 0);
    meet();
    group_start();
    CHECK(issue(&s, 1, COMM) == 6 && issue(&s, 0, OTHER_COMM) == 0 && issue(&s, 1, COMM) == 6);
    group_end();
    wait_for_all();
    compare(&s, 0, true);
    meet();
  }
  preload->device->close(lsa);
  preload->device->close(first);
}

#endif
