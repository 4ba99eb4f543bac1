/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of ../gin on the GPUs of one machine, a process a GPU, and the two latencies that they see: counter (the source
 * is read) and signal (the data is there).
 *   gin [--ranks N] [--nodes N] [--check [--small]] [--time] [--trips] [--traffic MESSAGES] [--kill] [--largest LOG2] [--stops US]
 *       [--series FILE] [--waits] [--sizes B,B,...] [--contexts N] [--no-nccl] [--kernels FILE]
 * --nodes: NCCL is told that ranks are on so many hosts (NCCL_HOSTID); ranks of different ones may share a GPU, where times say little. --check compares every element, --small with calls of few, in slots of 64 KiB and cells of 4, and with longer waits, for tools that make kernels slow; --time measures; both
 * without any. --trips: of the times only one put's, on one context, and copies' of as many bytes beside it. --traffic: so many messages from each rank to each other one on each context, of random sizes and kinds, every
 * byte compared when its signal is seen; --largest: of up to 2 to the power of so many bytes, 1 to 20 (13); --stops: senders and receivers stop now and then, for up to so long. --kill: the last rank is killed while there is traffic, and every other one has to
 * say so within the bound of its waits, and to end. --series: single calls before and behind faults of the carrier's, into FILE
 * (CSV; TRIALS=100 of each, QUIET=120000 calls without any). --waits: what cudaDeviceSynchronize, cudaFree and their like take behind a put and on a GPU
 * without NCCL (WAITS=20 of each), and communicators that go (TEARDOWNS=5). --contexts: at most so many, if NCCL grants them (NCCL_GIN_NCONTEXTS, where it is set, goes before it).
 * --kernels: lib/dynamiccl-gin.fatbin, or -gin-2.32.3.fatbin, of which hierarchical kernels and AllToAllv are checked and timed, beside flat ones: where
 * nodes have several ranks, so that --nodes 2 wants four ranks (--ranks 4). Without it, or with another NCCL than 2.28.9, they are left out, and a line says so.
 * GIN needs NICs that NCCL drives, or a net plugin that brings GIN (NCCL_NET_PLUGIN).
 * JSON lines. Exit: 0 if every element is right; 3 if there is no GIN or the probe found it not working, and the lines say
 * why; 4 if a step did not end in its time. In which step a rank ended that failed otherwise, a line says, too.
 */
#include <numeric>

#include "gin_rails.cuh"
#include "gin_series.cuh"
#include "gin_traffic.cuh"
#include "gin_waits.cuh"

struct Jobs {
  std::vector<size_t> sizes = {8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20};
  bool checks, times, trips, nccl = true, kills, waits;
  uint32_t messages;
  const char *series, *kernels = NCCL_VERSION_CODE == 22809 ? "lib/dynamiccl-gin.fatbin" : "lib/dynamiccl-gin-2.32.3.fatbin";
};

static double steadyUs() { /* one clock for all processes */
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static void runRank(const Jobs &jobs) {
  GinLife life;
  GinBuffers b;
  const size_t largest = *std::max_element(jobs.sizes.begin(), jobs.sizes.end());
  bufferBytes = std::max<size_t>(2 * largest, 4 << 20);
  const auto from = [](const char *name, int otherwise) { return getenv(name) == nullptr ? otherwise : atoi(getenv(name)); };
  if (jobs.waits) timeWaitsAlone(std::max(from("WAITS", 20), 1));
  const Rank k = startGin(life);
  step("windows", 60);
  const size_t bytes = std::max<size_t>(kGinMaxContexts * (largest + 8), kGinMaxContexts * (size_t)numRanks * kSlots * trafficSlotBytes());
  for (GinWindow *w : {&b.send, &b.recv}) needAll(life, ginWindow(life, bytes, w));
  if (jobs.checks) checkAll(k, life, b);
  const ShippedGin shipped = loadShipped(jobs.kernels);
  if (jobs.checks && shipped.there) checkShipped(k, life, shipped);
  if (jobs.trips) timeTrips(k, life, b, jobs.sizes);
  if (jobs.times) timeAll(k, life, b, jobs.sizes, jobs.nccl);
  if (jobs.times && shipped.there) timeShipped(k, life, shipped, jobs.sizes, jobs.nccl);
  if (jobs.series != nullptr) {
    step("series", 400);
    writeSeries(k, life, b, jobs.series, from("TRIALS", 100), from("QUIET", 120000));
  }
  if (jobs.waits) timeWaitsBeside(k, life, b, std::max(from("WAITS", 20), 1), std::max(from("TEARDOWNS", 5), 0));
  if (jobs.messages > 0) {
    step("traffic", jobs.kills ? 30 : 400);
    const bool fine = runTraffic(k, life, b, jobs.messages, 1);
    if (jobs.kills) { /* nobody can be waited for any more */
      if (ginFaulty(life)) printFailed(life.why);
      fflush(stdout);
      shared->us[rank] = steadyUs(); /* for the parent: when it had said so */
      shared->named[rank] = ((volatile uint64_t *)life.gin.fault)[numRanks - 1] != 0;
      _exit(fine ? 1 : kNoGin);
    }
    needHealthy(life);
  }
  step("end", 60);
  barrier();
  needAll(life, ginDestroy(life));
  const long wrong = shared->wrong;
  if (rank == 0) printf("{\"figure\":\"gin end\",\"ranks\":%d,\"nodes\":%d,\"wrong\":%ld}\n", numRanks, numNodes, wrong);
  step("end of the communicator", 60);
  barrier(); /* rank 0 has printed everything */
  if (plain != comm) needNccl(ncclCommDestroy(plain), "ncclCommDestroy");
  needNccl(ncclCommDestroy(comm), "ncclCommDestroy");
  _exit(wrong != 0);
}

static int awaitRanks(pid_t *children) {
  int failed = 0;
  const std::vector<pid_t> all(children, children + numRanks);
  for (int left = numRanks; left > 0; left--) {
    int status = 0;
    const pid_t ended = wait(&status);
    if (ended < 0) break;
    for (int r = 0; r < numRanks; r++)
      if (children[r] == ended) children[r] = 0;
    if (status == 0 || failed != 0) continue;
    failed = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    for (int r = 0; r < numRanks; r++) /* whose last word it may be */
      if (ended == all[r] && failed != kNoGin && failed != kLate)
        printf("{\"figure\":\"gin ended\",\"ranks\":%d,\"nodes\":%d,\"rank\":%d,\"step\":\"%s\",\"status\":%d,\"signal\":%d}\n", numRanks, numNodes, r, stepOf[r],
               failed, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    sleep(2); /* others may have the same to say */
    for (int r = 0; r < numRanks; r++) /* they would wait for ever for who has gone */
      if (children[r] != 0) kill(children[r], SIGKILL);
  }
  return failed;
}

/* 0: all others said within the bound that they lost somebody, and no kernel of theirs was left. A rank names the first one that it has
 * waited for too long, which may be another one that waits itself. */
static int killOne(const pid_t *children) {
  const pid_t last = children[numRanks - 1];
  while (strcmp(stepOf[numRanks - 1] != nullptr ? stepOf[numRanks - 1] : "", "traffic") != 0 && waitpid(last, nullptr, WNOHANG) == 0) usleep(10000);
  sleep(1);
  std::fill(shared->us, shared->us + numRanks, 0.0);
  const double begin = steadyUs();
  kill(last, SIGKILL);
  int said = 0, named = 0;
  double each[kMaxRanks] = {}; /* until its process had ended */
  pid_t ended;
  for (int status = 0; (ended = wait(&status)) > 0;)
    for (int r = 0; r < numRanks - 1; r++)
      if (children[r] == ended) each[r] = (steadyUs() - begin) / 1e6, said += WIFEXITED(status) && WEXITSTATUS(status) == kNoGin, named += shared->named[r];
  std::string all, until; /* and until it had said so: CUDA takes a while to end a process */
  for (int r = 0; r < numRanks - 1; r++) {
    all += (r == 0 ? "" : ",") + std::to_string(each[r]).substr(0, 5);
    until += (r == 0 ? "" : ",") + (shared->us[r] == 0 ? "null" : std::to_string((shared->us[r] - begin) / 1e6).substr(0, 5));
  }
  printf("{\"figure\":\"gin kill\",\"ranks\":%d,\"nodes\":%d,\"killed\":%d,\"bound_s\":%.1f,\"said_so_and_ended\":%d,\"named_the_killed\":%d,\"said_seconds_each\":[%s],\"seconds\":%.2f,\"seconds_each\":[%s]}\n",
         numRanks, numNodes, numRanks - 1, (double)waitNs / 1e9, said, named, until.c_str(), *std::max_element(each, each + numRanks), all.c_str());
  return said == numRanks - 1 ? 0 : 1;
}

int main(int argc, char **argv) {
  Jobs jobs = {};
  bool understood = true;
  for (int i = 1; i < argc; i++) {
    const bool more = i + 1 < argc;
    if (!strcmp(argv[i], "--ranks") && more) numRanks = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--nodes") && more) numNodes = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--contexts") && more) mostContexts = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--check")) jobs.checks = true;
    else if (!strcmp(argv[i], "--small")) mostChecked = 4097, ginSlotBytes = 64 << 10, ginCellBytes = 4 << 10, waitNs = 60000000000, stepFactor = 5, launchAlone = true;
    else if (!strcmp(argv[i], "--time")) jobs.times = true;
    else if (!strcmp(argv[i], "--trips")) jobs.trips = true;
    else if (!strcmp(argv[i], "--traffic") && more) jobs.messages = (uint32_t)atol(argv[++i]);
    else if (!strcmp(argv[i], "--largest") && more) trafficLogBytes = (uint32_t)atoi(argv[++i]);
    else if (!strcmp(argv[i], "--stops") && more) trafficStopNs = (uint64_t)(atof(argv[++i]) * 1e3);
    else if (!strcmp(argv[i], "--kill")) jobs.kills = true;
    else if (!strcmp(argv[i], "--series") && more) jobs.series = argv[++i];
    else if (!strcmp(argv[i], "--kernels") && more) jobs.kernels = argv[++i];
    else if (!strcmp(argv[i], "--waits")) jobs.waits = true;
    else if (!strcmp(argv[i], "--no-nccl")) jobs.nccl = false;
    else if (!strcmp(argv[i], "--sizes") && more) {
      jobs.sizes.clear();
      for (char *at = strtok(argv[++i], ","); at != nullptr; at = strtok(nullptr, ",")) jobs.sizes.push_back(std::max<size_t>(strtoull(at, nullptr, 10), 1));
    } else understood = false;
  }
  if (!understood || jobs.sizes.empty() || mostContexts < 1 || mostContexts > kGinMaxContexts || trafficLogBytes < 1 || trafficLogBytes > 20) {
    fprintf(stderr, "usage: gin [--ranks N] [--nodes N] [--check [--small]] [--time] [--trips] [--traffic MESSAGES] [--kill] [--largest 1..20] [--stops US] [--series FILE] [--waits] [--sizes BYTES,...] [--contexts 1..%d] [--no-nccl] [--kernels FILE]\n",
            kGinMaxContexts);
    return 2;
  }
  if (jobs.kills) jobs.messages = 1u << 30, waitNs = 3000000000;
  if (jobs.series != nullptr && getenv("DYNAMICCL_CARRIER_FAULTS") == nullptr) {
    fprintf(stderr, "gin: --series: DYNAMICCL_CARRIER_FAULTS=FILE names the file that faults are written to\n");
    return 2;
  }
  if (!jobs.checks && !jobs.times && !jobs.trips && jobs.messages == 0 && jobs.series == nullptr && !jobs.waits) jobs.checks = jobs.times = true;
  shared = (Shared *)mmap(nullptr, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  stepOf = (const char **)mmap(nullptr, kMaxRanks * sizeof *stepOf, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  numGpus = countGpus();
  if (numRanks == 0) numRanks = numGpus;
  if (numGpus < 1 || numRanks / std::max(numNodes, 1) > numGpus || numRanks < 2 || numRanks > kMaxRanks || numNodes < 1 || numRanks % numNodes != 0) {
    fprintf(stderr, "gin: %d ranks on %d nodes, %d GPUs: 2 to %d ranks are needed, as many on each node and as many GPUs as a node has ranks\n", numRanks, numNodes, numGpus, kMaxRanks);
    return 2;
  }
  setvbuf(stdout, nullptr, _IOLBF, 0); /* what was measured stays if a rank is killed */
  /* A kernel that is loaded when it is first launched waits for those that run, and holds the context's lock: a carrier that
   * needs CUDA's calls could then not bring what they wait for (docs/design.md, decision 29). */
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  pid_t children[kMaxRanks];
  for (rank = 0; rank < numRanks; rank++)
    if ((children[rank] = fork()) == 0) runRank(jobs);
  return jobs.kills ? killOne(children) : awaitRanks(children);
}
