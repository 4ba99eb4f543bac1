/* SPDX-License-Identifier: Apache-2.0
 *
 *   LD_PRELOAD=libdynamiccl.so test_api FOLDER LIBCUDA [trace]     FOLDER has the fake libnccl.so.2
 * dynamiccl.h: AllReduce with residual and normalisation in rank processes, every element compared, between calls of NCCL's
 * that become kernels; what it refuses; and what is counted. trace: some calls, and the end of the process.
 */
#include "norm_steps.h"

#include "../../../kernels/device/call.h"
#include "../dynamiccl.h"
#include "exchange.h"

enum { ALL_REDUCE = 4 };
/* Not linked: a program finds it as it finds NCCL. */
static __typeof__(dynamicclAllReduceAddRmsNorm) *fused;
static __typeof__(dynamicclHasKernels) *has_kernels;
static __typeof__(dynamicclAllToAllv) *all_to_all_v;
static __typeof__(dynamicclHasAllToAllv) *has_all_to_all_v;
static __typeof__(dynamicclIntercepted) *intercepted;

static int issue_at(const struct step *s, uintptr_t comm) {
  return fused(at(s, IN, 0), at(s, RESIDUAL, 0), at(s, WEIGHT, 0), at(s, OUT, 0), s->tokens, s->width, 0.5f, s->type, (void *)comm, s->stream);
}
static int issue(const struct step *s) { return issue_at(s, COMM); }

static int all_reduce(void *in, void *out, size_t count) {
  return find("ncclAllReduce")((uintptr_t)in, (uintptr_t)out, count, FLOAT32, 0, COMM, (uintptr_t)streams[0], 0, 0);
}

static void get_api(void) {
  fused = (__typeof__(fused))(void *)find("dynamicclAllReduceAddRmsNorm");
  has_kernels = (__typeof__(has_kernels))(void *)find("dynamicclHasKernels");
  all_to_all_v = (__typeof__(all_to_all_v))(void *)find("dynamicclAllToAllv");
  has_all_to_all_v = (__typeof__(has_all_to_all_v))(void *)find("dynamicclHasAllToAllv");
  intercepted = (__typeof__(intercepted))(void *)find("dynamicclIntercepted");
  CHECK(((int (*)(void))(void *)find("dynamicclVersion"))() == DYNAMICCL_API_VERSION);
}

static void begin(void) {
  get_api();
  make();
  for (int i = 0; i < STREAMS; i++) CHECK(cuda.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) == 0);
  for (int b = 0; b < BUFFERS; b++) {
    CUdeviceptr a;
    CHECK(cuda.cuMemAlloc_v2(&a, MOST * sizeof(float)) == 0);
    memory[b] = (void *)(uintptr_t)a;
  }
  CHECK(has_kernels((void *)COMM) == 0);
  planned = LSA(0, 1);
  fake->inside = do_bind;
  CHECK(all_reduce(memory[IN], memory[OUT], 1) == 0 && asked == 0);
  fake->inside = succeed;
  CHECK(has_kernels((void *)COMM) == 1 && has_kernels((void *)OTHER_COMM) == 0 && has_kernels(NULL) == 0);
}

static void wait_for_all(void) {
  for (int i = 0; i < STREAMS; i++) CHECK(cuda.cuStreamSynchronize(streams[i]) == 0);
}

/* Between AllReduces that are kernels as well, on other streams: one order for all. */
static void norms(void) {
  begin();
  float *sums = (float *)memory[WEIGHT] + MOST - 8;
  for (uint64_t n = 0; n < 60; n++) {
    struct step s = step_of(n);
    fill(&s);
    sums[0] = (float)rank + (float)n;
    unsigned before = fake->calls, askedBefore = asked;
    planned = LSA(n % 3, 1 + n % 2);
    if (n & 1) CHECK(all_reduce(sums, sums + 1, 1) == 0);
    CHECK(issue(&s) == 0);
    if (!(n & 1)) CHECK(all_reduce(sums, sums + 1, 1) == 0);
    CHECK(fake->calls == before && asked == askedBefore + 1, "the plan knows of one call");
    wait_for_all();
    compare(&s);
    CHECK(sums[1] == (float)(numRanks * (numRanks - 1) / 2) + (float)n * (float)numRanks, "%g", sums[1]);
    meet();
  }
}

static void graphs(void) {
  begin();
  struct step s = {.type = BFLOAT16, .tokens = 3, .width = 77, .stream = streams[0]};
  CUgraph captured;
  CUgraphExec graph;
  CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
  CHECK(issue(&s) == 0);
  CHECK(cuda.cuStreamEndCapture(streams[0], &captured) == 0);
  CHECK(cuda.cuGraphInstantiateWithFlags(&graph, captured, 0) == 0);
  for (uint64_t n = 0; n < 20; n++) {
    s.seed = random_of(n);
    fill(&s);
    CHECK(cuda.cuGraphLaunch(graph, streams[0]) == 0);
    wait_for_all();
    compare(&s);
    meet();
  }
}

/* CTAs of the one kernel that was captured. */
static unsigned ctas_of(CUgraph graph) {
  CUgraphNode nodes[4];
  size_t n = 4;
  unsigned ctas = 0;
  CHECK(cuda.cuGraphGetNodes(graph, nodes, &n) == 0 && n <= 4);
  for (size_t i = 0; i < n; i++) {
    CUDA_KERNEL_NODE_PARAMS params;
    int type;
    CHECK(cuda.cuGraphNodeGetType(nodes[i], &type) == 0);
    if (type != CU_GRAPH_NODE_TYPE_KERNEL) continue;
    CHECK(ctas == 0 && cuda.cuGraphKernelNodeGetParams_v2(nodes[i], &params) == 0);
    ctas = params.gridDimX;
  }
  return ctas;
}

static int issue_exchange(const struct exchange *x, uintptr_t comm, int way, int stream) {
  return all_to_all_v(memory[IN], x->sendCounts, x->sendOffsets, memory[OUT], x->recvCounts, x->recvOffsets, FLOAT32, way, (void *)comm, streams[stream]);
}

/* Between AllReduces that are kernels as well. */
static void exchanges(void) {
  begin();
  CHECK(has_all_to_all_v((void *)COMM, DYNAMICCL_LSA) == 1 && has_all_to_all_v((void *)COMM, DYNAMICCL_GIN) == 0 && has_all_to_all_v((void *)OTHER_COMM, DYNAMICCL_LSA) == 0);
  float *sums = (float *)memory[WEIGHT];
  for (uint64_t n = 0; n < 60; n++) {
    struct exchange x;
    exchange_make(&x, n, MOST / MAX_RANKS - 8);
    exchange_fill(&x, memory[IN], memory[OUT]);
    sums[0] = (float)rank;
    planned = LSA(n % 3, 1 + n % 2);
    if (n & 1) CHECK(all_reduce(sums, sums + 1, 1) == 0);
    CHECK(issue_exchange(&x, COMM, DYNAMICCL_LSA, (int)(n >> 1) % STREAMS) == 0);
    if (!(n & 1)) CHECK(all_reduce(sums, sums + 1, 1) == 0);
    wait_for_all();
    exchange_compare(&x, memory[OUT]);
    CHECK(sums[1] == (float)(numRanks * (numRanks - 1) / 2), "%g", sums[1]);
    meet();
  }
  /* A graph replays its counts with other data. */
  struct exchange x;
  CUgraph captured;
  CUgraphExec graph;
  exchange_make(&x, 7777, 3000);
  CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0 && issue_exchange(&x, COMM, DYNAMICCL_LSA, 0) == 0);
  CHECK(cuda.cuStreamEndCapture(streams[0], &captured) == 0 && cuda.cuGraphInstantiateWithFlags(&graph, captured, 0) == 0);
  for (int n = 0; n < 5; n++) {
    exchange_fill(&x, memory[IN], memory[OUT]);
    CHECK(cuda.cuGraphLaunch(graph, streams[0]) == 0);
    wait_for_all();
    exchange_compare(&x, memory[OUT]);
    meet();
  }
}

/* Ranks that share a GPU leave each other places on it, those of one call and of one in a graph, and none has more than the program
 * lets NCCL's have on any rank: design, decision 2.4. */
static void crowded(void) {
  static const unsigned mosts[] = {[1] = 128, [2] = 35, [4] = 15}, ofSmall[] = {[1] = 128, [2] = 17, [4] = 7};
  unsigned most = (getenv("FAKEGPU_MULTIPROCESSORS") == NULL ? mosts : ofSmall)[ranksAGpu];
  if (allowed > 0 && allowed < most) most = allowed;
  begin();
  for (int kind = 0; kind < 3; kind++) {
    struct step s = {.type = BFLOAT16, .tokens = 200, .width = 8, .stream = streams[0]};
    struct exchange x;
    CUgraph captured;
    CUgraphExec graph;
    unsigned wanted = kind == 1 ? 128 : 64;
    exchange_make(&x, 7777, 3000);
    planned = LSA(0, 64) | 1u << DYN_ACTION_WARPS_SHIFT;
    CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
    capturing = true;
    CHECK((kind == 0 ? all_reduce(memory[IN], memory[OUT], 10000) : kind == 1 ? issue(&s) : issue_exchange(&x, COMM, DYNAMICCL_LSA, 0)) == 0);
    capturing = false;
    CHECK(cuda.cuStreamEndCapture(streams[0], &captured) == 0 && cuda.cuGraphInstantiateWithFlags(&graph, captured, 0) == 0);
    unsigned ctas = ctas_of(captured);
    CHECK(ctas == (wanted < most ? wanted : most), "%u CTAs of kernel %d, %d ranks a GPU", ctas, kind, ranksAGpu);
    if (kind == 1) fill(&s);
    if (kind == 2) exchange_fill(&x, memory[IN], memory[OUT]);
    meet();
    CHECK(cuda.cuGraphLaunch(graph, streams[0]) == 0);
    wait_for_all();
    if (kind == 1) compare(&s);
    if (kind == 2) exchange_compare(&x, memory[OUT]);
    meet();
  }
}

static void refused_exchanges(void) {
  begin();
  struct exchange x;
  exchange_make(&x, 3, 100);
  CHECK(issue_exchange(&x, OTHER_COMM, DYNAMICCL_LSA, 0) == 5 && issue_exchange(&x, 0, DYNAMICCL_LSA, 0) == 5, "no kernels");
  CHECK(find("ncclGroupStart")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 0 && issue_exchange(&x, COMM, DYNAMICCL_LSA, 0) == 5, "in a group");
  CHECK(find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  CHECK(issue_exchange(&x, COMM, DYNAMICCL_GIN, 0) == 4 && issue_exchange(&x, COMM, 0, 0) == 4, "a way that is not there");
  x.sendCounts[1] = SIZE_MAX / 8;
  CHECK(issue_exchange(&x, COMM, DYNAMICCL_LSA, 0) == 4, "more than there is");
  exchange_make(&x, 3, 100);
  x.sendCounts[rank]++;
  CHECK(issue_exchange(&x, COMM, DYNAMICCL_LSA, 0) == 4, "to itself other than of itself");
  x.sendCounts[rank]--;
  CHECK(all_to_all_v(memory[IN], NULL, x.sendOffsets, memory[OUT], x.recvCounts, x.recvOffsets, FLOAT32, DYNAMICCL_LSA, (void *)COMM, streams[0]) == 4);
  CHECK(all_to_all_v(memory[IN], x.sendCounts, x.sendOffsets, memory[OUT], x.recvCounts, x.recvOffsets, 77, DYNAMICCL_LSA, (void *)COMM, streams[0]) == 4);
  exchange_fill(&x, memory[IN], memory[OUT]);
  CHECK(issue_exchange(&x, COMM, DYNAMICCL_LSA, 0) == 0);
  wait_for_all();
  exchange_compare(&x, memory[OUT]);
  meet();
  CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0 && has_all_to_all_v((void *)COMM, DYNAMICCL_LSA) == 0 && issue_exchange(&x, COMM, DYNAMICCL_LSA, 0) == 5);
  preload->device->close(lsa);
}

static void refused(void) {
  begin();
  struct step good = {.type = FLOAT32, .tokens = 2, .width = 10, .stream = streams[0]}, s = good;
  size_t lines = 1;
  CHECK(issue_at(&s, OTHER_COMM) == 5 && issue_at(&s, 0) == 5, "no kernels");
  CHECK(find("ncclGroupStart")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 0 && issue(&s) == 5, "in a group");
  CHECK(find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  for (int type = -1; type < 14; type++) {
    s.type = type;
    if (type != HALF && type != FLOAT32 && type != BFLOAT16) CHECK(issue(&s) == 4, "type %d", type);
  }
  for (int i = 0; i < 5; i++) {
    s = good;
    if (i & 1) s.tokens = i == 1 ? 0 : SIZE_MAX / 2;
    else s.width = i == 0 ? 0 : i == 2 ? SIZE_MAX / 2 : SIZE_MAX / 8 + 2;
    CHECK(issue(&s) == 4, "%zu x %zu", s.tokens, s.width);
  }
  CHECK(fused(NULL, memory[RESIDUAL], memory[WEIGHT], memory[OUT], 1, 1, 0.5f, FLOAT32, (void *)COMM, streams[0]) == 4);
  while (preload->device->room(lsa, ALL_REDUCE, (lines + 1) * DYN_LINE_DATA) >> DYN_KERNEL_ONE_SHOT & 1) lines++;
  s = good; /* rows begin at lines, so one element takes a line */
  s.width = 1;
  s.tokens = lines;
  CHECK(s.tokens < MOST - 4);
  fill(&s);
  CHECK(issue(&s) == 0);
  wait_for_all();
  compare(&s);
  s.tokens++;
  CHECK(issue(&s) == 4, "%zu lines", s.tokens);
  meet();
  CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0 && has_kernels((void *)COMM) == 0);
  CHECK(issue(&good) == 5 && issue_at(&good, 0) == 5);
  preload->device->close(lsa);
}

static void death(void) {
  begin();
  struct step s = {.type = HALF, .tokens = 2, .width = 100, .stream = streams[0]};
  fill(&s);
  CHECK(issue(&s) == 0);
  wait_for_all();
  compare(&s);
  meet();
  if (rank == numRanks - 1) _exit(0);
  CHECK(issue(&s) == 0);
  wait_for_all();
  CHECK(issue(&s) == 6);
  CHECK(find("ncclCommAbort")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  preload->device->close(lsa);
}

static struct dynamicclCalls counted(const char *name) {
  struct dynamicclCalls all[64];
  size_t n = intercepted(all, 64);
  CHECK(n > 30 && n <= 64 && intercepted(NULL, 0) == n, "%zu", n);
  for (size_t i = 0; i < n; i++)
    if (strcmp(all[i].name, name) == 0) return all[i];
  CHECK(false, "no %s", name);
  return all[0];
}

#define COUNTED(NAME, CALLS, KERNELS) \
  CHECK(counted(NAME).calls == (CALLS) && counted(NAME).kernels == (KERNELS), "%s: %llu, %llu", NAME, counted(NAME).calls, counted(NAME).kernels)

/* Alone, in groups, by NCCL itself. */
static void counts(void) {
  begin(); /* an AllReduce */
  struct dynamicclCalls two[2], untouched = two[1] = (struct dynamicclCalls){"untouched", 7, 7};
  CHECK(intercepted(two, 1) > 2 && memcmp(&two[1], &untouched, sizeof untouched) == 0, "beyond its room");
  COUNTED("ncclAllReduce", 1, 0);
  CHECK(all_reduce(memory[IN], memory[OUT], 5) == 0);
  COUNTED("ncclAllReduce", 2, 1);
  planned = 0;
  CHECK(all_reduce(memory[IN], memory[OUT], 5) == 0);
  COUNTED("ncclAllReduce", 3, 1);
  planned = LSA(0, 1);
  for (int calls = 1; calls <= 2; calls++) { /* one is held back and becomes a kernel, two are NCCL's */
    CHECK(find("ncclGroupStart")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    for (int i = 0; i < calls; i++) CHECK(all_reduce(memory[IN], memory[OUT], 5) == 0);
    CHECK(find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  }
  COUNTED("ncclAllReduce", 6, 2);
  COUNTED("ncclGroupStart", 2, 0);
  COUNTED("ncclGroupEnd", 2, 0);
  CHECK(find("ncclBcast")((uintptr_t)memory[IN], 4, FLOAT32, 0, OTHER_COMM, 0, 0, 0, 0) == 0 && strcmp(fake->name, "ncclBroadcast") == 0);
  COUNTED("ncclBcast", 1, 0);
  COUNTED("ncclBroadcast", 0, 0);
  CHECK(find("ncclSend")(0, 1, FLOAT32, 1, OTHER_COMM, 0, 0, 0, 0) == 0 && find("ncclReduceConfig")(0, 0, 1, FLOAT32, 0, 0, OTHER_COMM, 0, 0) == 0);
  COUNTED("ncclSend", 1, 0);
  COUNTED("ncclReduceConfig", 1, 0);
  struct step s = {.type = FLOAT32, .tokens = 1, .width = 8, .stream = streams[0]};
  CHECK(issue(&s) == 0);
  COUNTED("ncclAllReduce", 6, 2);
  wait_for_all();
  meet();
  CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  COUNTED("ncclCommDestroy", 1, 0);
  COUNTED("ncclCommInitRank", 0, 0);
  preload->device->close(lsa);
}

static int trace(void) {
  rank = 0;
  load();
  for (int i = 0; i < 3; i++) CHECK(find("ncclAllGather")(0, 0, 4, FLOAT32, OTHER_COMM, 0, 0, 0, 0) == 0);
  CHECK(find("ncclBcast")(0, 4, FLOAT32, 0, OTHER_COMM, 0, 0, 0, 0) == 0);
  int status;
  pid_t child = fork(); /* which tells of its own calls */
  if (child == 0) CHECK(find("ncclReduce")(0, 0, 4, FLOAT32, 0, 0, OTHER_COMM, 0, 0) == 0);
  if (child > 0) CHECK(waitpid(child, &status, 0) == child && status == 0);
  return 0;
}

int main(int argc, char **argv) {
  char kernels[4096];
  CHECK(argc >= 3, "FOLDER LIBCUDA");
  folder = argv[1];
  driverPath = argv[2];
  if (argc > 3) return trace();
  write_kernels(kernels);
  for (int ranks = 2; ranks <= MAX_RANKS; ranks++) play("norms", ranks, norms);
  for (int ranks = 2; ranks <= MAX_RANKS; ranks++) play("exchanges", ranks, exchanges);
  play("refused exchanges", 2, refused_exchanges);
  play("graphs", 3, graphs);
  for (ranksAGpu = 4; ranksAGpu >= 1; ranksAGpu /= 2) play("crowded", 4, crowded);
  setenv("FAKEGPU_MULTIPROCESSORS", "78", 1);
  for (ranksAGpu = 4; ranksAGpu >= 1; ranksAGpu /= 2) play("crowded and small", 4, crowded);
  unsetenv("FAKEGPU_MULTIPROCESSORS");
  allowed = 11;
  for (ranksAGpu = 4; ranksAGpu >= 1; ranksAGpu /= 4) play("bounded", 4, crowded);
  ranksAGpu = 1, allowed = 0;
  play("refused", 2, refused);
  play("death", 3, death);
  play("counts", 2, counts);
  unlink(kernels);
  return 0;
}
