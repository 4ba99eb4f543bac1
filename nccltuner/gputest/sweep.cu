/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures real NCCL, one process a GPU: every choice that a tuner can make, as replays of a CUDA graph of k calls or, with
 * --calls stream, as k stream calls: over sockets a graph needs host work for every call and small ones take twice as long.
 * See sweep.sh for the options. Start it through sweep.sh: it needs the forced plugin and the memory they share.
 */
#include <cuda.h>
#include <cuda_runtime.h>
#include <errno.h>
#include <fcntl.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/mman.h>
#include <time.h>

#include <map>

#include "sweep.h"
#include "sweep_load.h"
#include "sweep_noise.h"
#include "sweep_points.h"

#define DIE(...) (fprintf(stderr, "sweep: " __VA_ARGS__), fputc('\n', stderr), _exit(1))
#define CU(x) do { cudaError_t e_ = (x); if (e_ != cudaSuccess) DIE("%s: %s", #x, cudaGetErrorString(e_)); } while (0)
#define NC(x) do { ncclResult_t r_ = (x); if (r_ != ncclSuccess) DIE("%s: %s", #x, ncclGetErrorString(r_)); } while (0)

static const int kGraphCalls = 20;         // for short calls; fewer where they would take longer than kGraphUs
static const double kGraphUs = 10000;
static const int kMaxReplays = 50, kMinReplays = 3;
static const double kWarmUs = 2000;        // replays that are not counted, so that clocks and connections are warm
static const int kStallSeconds = 40;       // without a barrier: the point hangs

static std::map<std::string, std::string> options = {
    {"ranks", "4"}, {"nodes", "1"}, {"machine", "4xH200"}, {"transport", "nvlink"}, {"condition", "quiet"}, {"load", "none"},
    {"min", "1024"}, {"max", "268435456"}, {"collectives", "AllReduce,AllGather,ReduceScatter,Broadcast,Reduce"},
    {"budget-us", "40000"}, {"seconds", "120"}, {"calls", "graph"}, {"out", ""}, {"ran", ""}, {"noise", ""}, {"series", ""}};
static sweep_shared *shared;
static int nranks, rank_;
static GpuLoad load;

static double nowUs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void barrier() {
  int g = __atomic_load_n(&shared->generation, __ATOMIC_ACQUIRE);
  if (__atomic_add_fetch(&shared->arrived, 1, __ATOMIC_ACQ_REL) == nranks) {
    __atomic_store_n(&shared->arrived, 0, __ATOMIC_RELEASE);
    __atomic_fetch_add(&shared->beat, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&shared->generation, g + 1, __ATOMIC_RELEASE);
    return;
  }
  while (__atomic_load_n(&shared->generation, __ATOMIC_ACQUIRE) == g) sched_yield(); // the parent ends a stalled group
}

// 1, 1.25, ... 2.75 in bf16: sums over ranks are exact, and the bits change from element to element.
__global__ void fill(uint16_t *p, size_t n) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x)
    p[i] = __float_as_uint(1.0f + (i % 8) * 0.25f) >> 16;
}

struct Rank {
  ncclComm_t comm;
  cudaStream_t stream;
  void *send, *recv;

  void call(const Point &p) {
    const size_t n = p.bytes / 2, part = partOf(p);  // bytes of the whole buffer, as nccl-tests count
    switch (p.collective) {
      case AllReduce: NC(ncclAllReduce(send, recv, n, ncclBfloat16, ncclSum, comm, stream)); break;
      case AllGather: NC(ncclAllGather(send, recv, part, ncclBfloat16, comm, stream)); break;
      case ReduceScatter: NC(ncclReduceScatter(send, recv, part, ncclBfloat16, ncclSum, comm, stream)); break;
      case Broadcast: NC(ncclBroadcast(send, recv, n, ncclBfloat16, 0, comm, stream)); break;
      case Reduce: NC(ncclReduce(send, recv, n, ncclBfloat16, ncclSum, 0, comm, stream)); break;
    }
  }
  // A rank's share, whole 16 bytes as nccl-tests has it: 3 GPUs move a little less than the size says.
  static size_t partOf(const Point &p) { return p.bytes / 2 / nranks / 8 * 8; }
  static size_t outputs(const Point &p) {
    return p.collective == ReduceScatter ? partOf(p) : p.collective == AllGather ? partOf(p) * nranks : p.bytes / 2;
  }
  void poison(const Point &p) { CU(cudaMemsetAsync((uint16_t *)recv + outputs(p) - 1, 0xff, 2, stream)); }
  bool right(const Point &p) {
    if (p.collective == Reduce && rank_ != 0) return true;
    uint16_t bits;
    CU(cudaMemcpy(&bits, (uint16_t *)recv + outputs(p) - 1, 2, cudaMemcpyDeviceToHost));
    uint32_t wide = (uint32_t)bits << 16;
    float got;
    memcpy(&got, &wide, 4);
    const bool sums = p.collective != AllGather && p.collective != Broadcast;
    return got == 2.75f * (sums ? nranks : 1);  // shares are multiples of 8 elements: the last one is fill's eighth
  }
};

// The blocks of the first kernel in a graph: NCCL runs one a channel. The runtime does not know NCCL's kernels.
static int gridOf(cudaGraph_t graph) {
  typedef CUresult (*Get)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS *);
  static Get get = nullptr;
  cudaDriverEntryPointQueryResult found;
  if (!get) CU(cudaGetDriverEntryPointByVersion("cuGraphKernelNodeGetParams", (void **)&get, 12000, cudaEnableDefault, &found));
  size_t n = 0;
  CU(cudaGraphGetNodes(graph, nullptr, &n));
  std::vector<cudaGraphNode_t> nodes(n);
  CU(cudaGraphGetNodes(graph, nodes.data(), &n));
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type;
    CU(cudaGraphNodeGetType(node, &type));
    CUDA_KERNEL_NODE_PARAMS params;
    if (type == cudaGraphNodeTypeKernel && get(node, &params) == CUDA_SUCCESS) return params.gridDimX;
  }
  return 0;
}

static cudaGraphExec_t capture(Rank &r, const Point &p, int calls, int *grid) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CU(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < calls; i++) r.call(p);
  CU(cudaStreamEndCapture(r.stream, &graph));
  *grid = gridOf(graph);
  CU(cudaGraphInstantiate(&exec, graph, 0));
  CU(cudaGraphDestroy(graph));
  CU(cudaGraphUpload(exec, r.stream));
  CU(cudaStreamSynchronize(r.stream));
  return exec;
}

// Sets the choice, runs it twice outside a graph and asks the Coll event what ran. False: NCCL did something else.
static bool force(Rank &r, const Point &p) {
  sweep_rank *self = &shared->ranks[rank_];
  barrier();
  if (rank_ == 0) {
    shared->protocol = p.protocol, shared->channels = p.channels;
    __atomic_store_n(&shared->algorithm, p.algorithm, __ATOMIC_RELEASE);
  }
  self->refused = self->calls = self->wrong = 0;
  barrier();
  r.poison(p);
  if (self->mask) *(volatile int *)self->mask = 1 << 1;  // ncclProfileColl
  r.call(p);                                             // connects what this choice needs
  CU(cudaStreamSynchronize(r.stream));
  if (self->mask) *(volatile int *)self->mask = 0;
  self->wrong = !r.right(p);
  barrier();
  double begin = nowUs();
  r.call(p);
  CU(cudaStreamSynchronize(r.stream));
  self->estimateUs = nowUs() - begin;
  barrier();
  for (int i = 0; i < nranks; i++) {
    sweep_rank *o = &shared->ranks[i];
    if (o->refused || o->wrong) return false;
    if (p.algorithm >= 0 && (o->calls == 0 || strcasecmp(o->algorithm, algorithmName(p.algorithm)) ||
                             strcasecmp(o->protocol, kProtocols[p.protocol]))) return false;
  }
  return true;
}

static void measure(Rank &r, const Point &p) {
  sweep_rank *self = &shared->ranks[rank_];
  double estimate = 1;
  for (int i = 0; i < nranks; i++) estimate = std::max(estimate, shared->ranks[i].estimateUs);
  const int calls = std::max(1, std::min(kGraphCalls, (int)(kGraphUs / estimate)));
  const double once = estimate * calls, budget = atof(options["budget-us"].c_str());
  const int replays = std::max(kMinReplays, std::min(kMaxReplays, (int)(budget / once)));
  const int warm = 1 + (int)(kWarmUs / once);
  self->gridChannels = self->channels;
  cudaGraphExec_t exec = options["calls"] == "graph" ? capture(r, p, calls, &self->gridChannels) : nullptr;
  auto run = [&] {
    if (exec) CU(cudaGraphLaunch(exec, r.stream));
    for (int i = 0; !exec && i < calls; i++) r.call(p);
  };
  static std::vector<cudaEvent_t> events;
  while ((int)events.size() <= kMaxReplays) CU(cudaEventCreate(&events.emplace_back()));
  barrier();
  load.turn(true);
  barrier();
  for (int i = 0; i < warm; i++) run();
  CU(cudaEventRecord(events[0], r.stream));
  for (int i = 0; i < replays; i++) {
    run();
    CU(cudaEventRecord(events[i + 1], r.stream));
  }
  CU(cudaStreamSynchronize(r.stream));
  load.turn(false);
  std::vector<double> us;
  for (int i = 0; i < replays; i++) {
    float ms;
    CU(cudaEventElapsedTime(&ms, events[i], events[i + 1]));
    us.push_back(ms * 1000 / calls);
  }
  self->medianUs = medianOf(us);
  barrier();
  if (exec) CU(cudaGraphExecDestroy(exec));
}

static std::string version() {
  char v[32];
  snprintf(v, sizeof v, "%d.%d.%d", shared->nccl / 10000, shared->nccl / 100 % 100, shared->nccl % 100);
  return v;
}

static std::string choiceOf(const Point &p) {
  if (p.algorithm < 0) return "default,-,-,-";
  return std::string("collective,") + algorithmName(p.algorithm) + "," + kProtocols[p.protocol] + "," + std::to_string(p.channels);
}

static void say(FILE *out, FILE *ran, const Point &p, bool good) {
  sweep_rank *r = shared->ranks;
  double worst = 0;
  for (int i = 0; i < nranks; i++) worst = std::max(worst, r[i].medianUs);
  if (good) {
    fprintf(out, "%s,%s,%d,%s,%s,%s,%s,%zu,%s,%.2f\n", options["machine"].c_str(), version().c_str(), nranks, options["nodes"].c_str(),
            options["transport"].c_str(), options["condition"].c_str(), kCollectives[p.collective], p.bytes, choiceOf(p).c_str(), worst);
    fflush(out);
  }
  bool refused = false, wrong = false;
  for (int i = 0; i < nranks; i++) refused |= r[i].refused, wrong |= r[i].wrong;
  fprintf(ran, "%s,%s,%s,%s,%s,%zu,%s,%s,%s,%d,%d,%s,%.2f\n", options["machine"].c_str(), version().c_str(), options["transport"].c_str(), options["condition"].c_str(),
          kCollectives[p.collective], p.bytes, choiceOf(p).c_str(), r[0].algorithm, r[0].protocol, r[0].channels, r[0].gridChannels,
          wrong ? "WRONG RESULT" : refused ? "refused" : good ? "ok" : "other", good ? worst : 0.0);
  fflush(ran);
}

// Single calls, with an event on either side: in graphs of one call, or as plain stream calls.
static void noise(Rank &r, const Point &p, bool graph, FILE *out, FILE *series) {
  double estimate = 1;
  for (int i = 0; i < nranks; i++) estimate = std::max(estimate, shared->ranks[i].estimateUs);
  const int n = std::min(SWEEP_MAX_CALLS, std::max(100, (int)(2.5e6 / estimate)));
  int grid;
  cudaGraphExec_t exec = graph ? capture(r, p, 1, &grid) : nullptr;
  static std::vector<cudaEvent_t> events;
  while (events.size() < 2 * SWEEP_MAX_CALLS) CU(cudaEventCreate(&events.emplace_back()));
  for (int pass = 0; pass < 2; pass++) {  // the first pass warms clocks and events
    barrier();
    for (int i = 0; i < (pass ? n : 50); i++) {
      CU(cudaEventRecord(events[2 * i], r.stream));
      if (graph) CU(cudaGraphLaunch(exec, r.stream));
      else r.call(p);
      CU(cudaEventRecord(events[2 * i + 1], r.stream));
    }
    CU(cudaStreamSynchronize(r.stream));
  }
  for (int i = 0; i < n; i++) {
    float ms;
    CU(cudaEventElapsedTime(&ms, events[2 * i], events[2 * i + 1]));
    shared->ranks[rank_].seriesUs[i] = ms * 1000;
  }
  barrier();
  if (rank_ == 0) {
    std::vector<double> least, most, spread;
    for (int i = 0; i < n; i++) {
      double lo = 1e18, hi = 0;
      for (int k = 0; k < nranks; k++) lo = std::min(lo, (double)shared->ranks[k].seriesUs[i]), hi = std::max(hi, (double)shared->ranks[k].seriesUs[i]);
      least.push_back(lo), most.push_back(hi), spread.push_back((hi - lo) / lo);
      if (series) fprintf(series, "%s,%s,%zu,%s,%s,%d,%.2f,%.2f\n", options["transport"].c_str(), kCollectives[p.collective], p.bytes, choiceOf(p).c_str(), graph ? "graph" : "stream", i, lo, hi);
    }
    for (int k = 0; k < 2; k++)
      fprintf(out, "{\"figure\": \"gpu noise\", \"machine\": \"%s\", \"transport\": \"%s\", \"nodes\": %s, \"condition\": \"%s\", \"driver\": \"%s\", "
              "\"nccl\": \"%s\", \"date\": \"%s\", \"commit\": \"%s\", \"bucket\": \"%s %zu\", \"action\": \"%s\", \"calls_as\": \"%s\", "
              "\"over_ranks\": \"%s\", \"calls\": %d, %s, \"rank_spread_median\": %.4f}\n",
              options["machine"].c_str(), options["transport"].c_str(), options["nodes"].c_str(), options["condition"].c_str(), getenv("SWEEP_DRIVER") ?: "",
              version().c_str(), getenv("SWEEP_DATE") ?: "", getenv("SWEEP_COMMIT") ?: "", kCollectives[p.collective], p.bytes, choiceOf(p).c_str(),
              graph ? "graph of one" : "stream call", k ? "max" : "min", n, noiseFacts(k ? most : least).c_str(), medianOf(spread));
    fflush(out);
  }
  barrier();
  if (exec) CU(cudaGraphExecDestroy(exec));
}

static FILE *append(const std::string &path) {
  FILE *f = fopen(path.empty() ? "/dev/null" : path.c_str(), "a");
  if (!f) DIE("opening %s: %s", path.c_str(), strerror(errno));
  return f;
}

static void runRank(int rank, size_t from, double deadlineUs) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  rank_ = rank;
  const int nodes = atoi(options["nodes"].c_str());
  if (nodes > 1) setenv("NCCL_HOSTID", ("sweep-node" + std::to_string(rank * nodes / nranks)).c_str(), 1);
  setenv(SWEEP_RANK_ENV, std::to_string(rank).c_str(), 1);
  CU(cudaSetDevice(rank));
  if (rank == 0) {
    ncclUniqueId id;
    NC(ncclGetVersion(&shared->nccl));
    NC(ncclGetUniqueId(&id));
    memcpy(shared->uniqueId, &id, sizeof id);
  }
  barrier();
  Rank r;
  ncclUniqueId id;
  memcpy(&id, shared->uniqueId, sizeof id);
  const size_t most = strtoull(options["max"].c_str(), nullptr, 10);
  const bool forNoise = !options["noise"].empty();
  const size_t room = std::max(most, (size_t)64 << 20);
  CU(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
  CU(cudaMalloc(&r.send, room));
  CU(cudaMalloc(&r.recv, room));
  fill<<<1024, 256, 0, r.stream>>>((uint16_t *)r.send, room / 2);
  CU(cudaStreamSynchronize(r.stream));
  NC(ncclCommInitRank(&r.comm, nranks, id, rank));
  const std::string kind = options["load"];
  if (!load.start(kind == "compute" ? 'c' : kind == "copy" ? 'p' : 'n', rank, nranks)) DIE("starting the load: %s", cudaGetErrorString(cudaGetLastError()));
  GpuLoad warm;  // clocks rise only under work; cold ones add 30-60% to small calls
  if (!warm.start('c', rank, nranks)) DIE("warming: %s", cudaGetErrorString(cudaGetLastError()));
  warm.turn(true), usleep(700000), warm.turn(false), warm.end();
  if (!shared->ranks[rank].mask) DIE("NCCL did not load the forced plugin as profiler: what runs could not be checked");
  std::vector<Point> list = forNoise ? noisePoints(nodes > 1) : points(options["collectives"], strtoull(options["min"].c_str(), nullptr, 10), most);
  FILE *out = append(rank ? "" : forNoise ? options["noise"] : options["out"]), *ran = append(rank ? "" : options["ran"]);
  FILE *series = options["series"].empty() || rank ? nullptr : append(options["series"]);
  size_t at = from;
  for (; at < list.size(); at++) {
    if (rank == 0) __atomic_store_n(&shared->point, (int)at, __ATOMIC_RELEASE), __atomic_store_n(&shared->stop, nowUs() > deadlineUs, __ATOMIC_RELEASE);
    const bool good = force(r, list[at]);
    if (shared->stop) break;
    if (good && forNoise) noise(r, list[at], true, out, series), noise(r, list[at], false, out, series);
    else if (good) measure(r, list[at]);
    barrier();
    if (rank == 0 && !forNoise) say(out, ran, list[at], good);
  }
  if (rank == 0) fprintf(stderr, "sweep: %zu of %zu points%s\n", at, list.size(), at < list.size() ? ", out of time" : "");
  fclose(out), fclose(ran);
  if (series) fclose(series);
  barrier();
  _exit(0);  // the communicators die with the processes: nothing is left to be tidy for
}

// One group of rank processes; the exit is 0 when all ended well. A group that stalls or loses a rank is ended.
static bool runGroup(size_t from, double deadlineUs) {
  shared->arrived = shared->generation = shared->stop = 0;
  std::vector<pid_t> pids;
  for (int i = 0; i < nranks; i++) {
    pid_t pid = fork();
    if (pid == 0) runRank(i, from, deadlineUs);
    pids.push_back(pid);
  }
  int left = nranks, beat = -1;
  bool ok = true;
  double changed = nowUs();
  while (left > 0 && ok) {
    for (pid_t &p : pids) {
      int status;
      if (p > 0 && waitpid(p, &status, WNOHANG) == p) {
        left--, p = -1;
        ok &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
      }
    }
    int b = __atomic_load_n(&shared->beat, __ATOMIC_ACQUIRE);
    if (b != beat) beat = b, changed = nowUs();
    if (nowUs() - changed > kStallSeconds * 1e6) ok = false;
    usleep(5000);
  }
  std::vector<pid_t> rest;
  for (pid_t p : pids) if (p > 0) rest.push_back(p);
  stopAll(rest);
  return ok;
}

int main(int argc, char **argv) {
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strncmp(argv[i], "--", 2) || !options.count(argv[i] + 2)) DIE("unknown option %s", argv[i]);
    options[argv[i] + 2] = argv[i + 1];
  }
  if (argc % 2 == 0) DIE("option %s has no value", argv[argc - 1]);
  nranks = atoi(options["ranks"].c_str());
  if (nranks < 2 || nranks > SWEEP_MAX_RANKS) DIE("--ranks %d: 2 to %d", nranks, SWEEP_MAX_RANKS);
  const char *path = getenv(SWEEP_PATH_ENV);
  int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (fd < 0 || ftruncate(fd, sizeof *shared)) DIE("%s: set it to a file that can be written (%s)", SWEEP_PATH_ENV, strerror(errno));
  void *at = mmap(nullptr, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) DIE("mapping %s: %s", path, strerror(errno));
  shared = (sweep_shared *)at;
  memset(shared, 0, sizeof *shared);
  shared->algorithm = -1;
  if (!options["out"].empty()) {
    FILE *out = append(options["out"]);
    fprintf(out, "machine,nccl,nranks,nnodes,transport,condition,collective,bytes,path,algorithm,protocol,channels,median_us\n");
    fclose(out);
  }
  std::vector<pid_t> pump;
  if (options["load"] == "tcp") pump = startTcpLoad(24);
  const double deadline = nowUs() + atof(options["seconds"].c_str()) * 1e6;
  bool ok = false;
  size_t from = 0;
  for (int tries = 0; tries < 4 && !ok && nowUs() < deadline; tries++) {
    ok = runGroup(from, deadline);
    if (!ok) fprintf(stderr, "sweep: point %d ended the ranks; going on with the next\n", shared->point);
    from = shared->point + 1;
    shared->algorithm = -1;
  }
  stopAll(pump);
  return ok ? 0 : 1;
}
