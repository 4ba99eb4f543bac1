/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves on real GPUs that results are right and that nothing hangs, whatever tunes NCCL: every element of every result
 * is compared on the GPU. The tuner comes in by NCCL's environment variables; --ours says what of it is to have run.
 *   mix cases [--only NAME,...]   named cases, each in processes of its own, a JSON line each
 *   mix random [--seed X]         a random mix of calls, communicators, streams, graphs and groups, one JSON line
 * Options of both: --ours none|lsa|gin (kernels of DynamICCL's have to run: cases of many calls fail where they ran none, all-to-all-v where it
 * was not tried), --ranks N (on the GPUs in turn; more than GPUs: with NCCL 2.30 or newer and what mix_common.sh sets), --nodes N (ranks
 * that pretend to be on N hosts), --node-env NAME=VALUE (a variable of a node's ranks, %d is the node's number), --seed X, --out FILE (JSON lines are appended),
 * --seconds S (of the mix, 60; of each case that goes on for a time, 8), --hang-seconds S, --spoil N (makes one result in N wrong, to see that it is noticed), --ahead N (replays of a graph that are in flight, 16);
 * of random: --one-process (a thread a GPU). Exit: 0 all right, 1 wrong elements, 2 usage, 3 a hang, 4 a rank failed. See cases.sh and stress.sh.
 */
#include "mix_job.h"

static const Job kCases[] = {
    {"plans-under-eager-calls", kProcesses, casePlans, 1, kMaxRanks, false, false, true},
    {"graphs", kProcesses, caseGraphs, 1},
    {"graphs-forked", kProcesses, caseForks, 1},
    {"loops", kProcesses, caseLoops, 1, kMaxRanks, false, true},  // by name alone: not every NCCL can be captured there
    {"graphs-by-threads", kProcesses, caseThreads, 1},
    {"groups", kProcesses, caseGroups, 1},
    {"groups-apart", kProcesses, caseGroupsApart, 2},
    {"streams-and-communicators", kProcesses, caseStreams, 1, kMaxRanks, false, false, true},
    {"one-communicator-many-streams", kProcesses, caseOneCommStreams, 1, kMaxRanks, false, false, true},
    {"places", kProcesses, casePlaces, 2},
    {"all-to-all-v", kProcesses, caseExchanges, 2, kMaxRanks, false, false, true},
    {"everything", kProcesses, caseEverything, 1, kMaxRanks, false, false, true},
    {"registered", kProcesses, caseRegistered, 2, 1, false, false, true},  // where ranks share a GPU nobody knows what NCCL's symmetric kernels need there
    {"registered-apart", kProcesses, caseRegisteredApart, 2, 1, false, false, true},
    {"registered-halves", kProcesses, caseHalves, 2, 1},
    {"split", kProcesses, caseSplit, 2},
    {"shrink", kProcesses, caseShrink, 2},
    {"shrink-abort", kProcesses, caseShrinkAbort, 2},
    {"abort", kProcesses, caseAbort, 2},
    {"non-blocking", kProcesses, caseNonBlocking, 1},
    {"ends-in-flight", kProcesses, caseEndsInFlight, 2, kMaxRanks, false, false, true},
    {"children", kProcesses, caseChildren, 2, kMaxRanks, false, false, true},
    {"rank-killed", kProcesses, caseKilled, 2, 1, true, false, true},  // under CUDA's multi-process service others may die with it
    // NCCL would let ranks of a process share a GPU, but they share its queues there, too: a kernel that waits for one
    // behind it in a queue waits for ever.
    {"one-process-init-all", kOneThread, nullptr, 1, 1},
    {"one-process-threads", kThreads, caseEverything, 1, 1},
    {"processes-uneven", kUneven, caseEverything, 3, 1},
};

static std::string quoted(const std::string &text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += (unsigned char)c < 32 ? ' ' : c;
  }
  return out + "\"";
}

// What ranks have to tell, where they do.
static std::string said() {
  std::string all;
  for (int i = 0; i < options.ranks; i++)
    if (shared->ranks[i].said[0]) all += (all.empty() ? "" : ", ") + quoted("rank " + std::to_string(i) + ": " + shared->ranks[i].said);
  return all.empty() ? "" : "\"said\": [" + all + "], ";
}

static void writeLine(const char *figure, const Job &job, const Outcome &o) {
  static const char *const words[] = {"pass", "wrong", "usage", "hang", "failed"};
  std::string calls;
  for (int k = 0; k < kKinds; k++) {
    uint64_t all = 0;
    for (int i = 0; i < options.ranks; i++) all += shared->ranks[i].calls[k];
    calls += (k ? ", " : "") + quoted(kKindNames[k]) + ": " + std::to_string(all);
  }
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", shared->nccl / 10000, shared->nccl / 100 % 100, shared->nccl % 100);
  auto field = [](const char *name, uint64_t v) { return quoted(name) + ": " + std::to_string(v) + ", "; };
  auto word = [](const char *name, const std::string &v) { return quoted(name) + ": " + quoted(v) + ", "; };
  std::string line =
      "{" + word("figure", figure) + word("case", job.name) + word("result", words[o.code]) + word("why", o.why);
  line += field("gpus", std::min(options.ranks, options.gpus)) + field("ranks", options.ranks) +
          (ranksOfGpu() > 1 ? "\"gpus_shared\": true, " : "") + field("nodes", options.nodes) + field("seed", options.seed);
  line += field("calls", sum(&SharedRank::issued)) + field("calls_compared", sum(&SharedRank::compared)) +
          "\"calls_by_kind\": {" + calls + "}, ";
  line += field("replays", sum(&SharedRank::replays)) + field("captures", sum(&SharedRank::captures)) +
          field("groups", sum(&SharedRank::groups));
  line += field("bytes", sum(&SharedRank::bytes)) + field("elements", sum(&SharedRank::elements)) +
          field("wrong", sum(&SharedRank::wrong));
  line += word("ours", getenv("DYNAMICCL_NO_KERNELS") && !strcmp(getenv("DYNAMICCL_NO_KERNELS"), "1") ? "none: DYNAMICCL_NO_KERNELS" : oursName()) +
          field("kernels_run", sum(&SharedRank::kernels)) + said();
  line += field("hangs", o.code == kHang) + word("nccl", version) + word("gpu", shared->gpu) +
          word("layout", job.layout == kUneven ? "two processes, of one rank and of all others" : job.layout != kProcesses ? "one process" : ranksOfGpu() > 1 ? "a process a rank" : "a process a GPU");
  line += word("driver", getenv("MIX_DRIVER") ?: "") + word("date", getenv("MIX_DATE") ?: "") +
          word("commit", getenv("MIX_COMMIT") ?: "");
  char seconds[48];
  snprintf(seconds, sizeof seconds, "\"seconds\": %.2f}\n", o.seconds);
  line += seconds;
  fputs(line.c_str(), stdout);
  fflush(stdout);
  if (options.out.empty()) return;
  FILE *f = fopen(options.out.c_str(), "a");
  if (!f || fputs(line.c_str(), f) < 0 || fclose(f)) fail("appending to %s: %s", options.out.c_str(), strerror(errno));
}

static int runCases() {
  int worst = kRight, ran = 0;
  for (const Job &job : kCases) {
    const std::string name = "," + std::string(job.name) + ",";
    if (options.only.empty() ? job.byName : ("," + options.only + ",").find(name) == std::string::npos) continue;
    if (ranksOfGpu() > job.mostOfGpu) {
      fprintf(stderr, "mix: LEFT OUT %s, where %d ranks share a GPU\n", job.name, ranksOfGpu());
      continue;
    }
    if (options.only.empty() && options.ranks >= 2 && options.ranks < job.leastRanks) {
      fprintf(stderr, "mix: LEFT OUT %s, which needs %d GPUs\n", job.name, job.leastRanks);
      continue;
    }
    ran++;
    if (options.ranks < job.leastRanks) {
      fprintf(stderr, "mix: %s needs %d GPUs\n", job.name, job.leastRanks);
      worst = std::max(worst, (int)kFailed);
      continue;
    }
    fprintf(stderr, "mix: case %s\n", job.name);
    const Outcome o = runJob(job);
    fprintf(stderr, "mix: %s %s%s%s (%llu calls, %llu elements, %.1f s)\n", o.code ? "FAIL" : "PASS", job.name,
            o.why.empty() ? "" : ": ", o.why.c_str(), (unsigned long long)sum(&SharedRank::compared),
            (unsigned long long)sum(&SharedRank::elements), o.seconds);
    if (options.ours && !sum(&SharedRank::kernels)) fprintf(stderr, "mix: NOTE kernels of ours ran no call of %s\n", job.name);
    writeLine("gpu mix case", job, o);
    if (o.code == kWrong || worst == kRight) worst = o.code;  // wrong elements outweigh all else
  }
  if (ran == 0) fail("no case was run of those that are called %s", options.only.c_str());
  return worst;
}

static int usage(const char *text, const char *what) {
  fprintf(stderr,
          "mix: %s%s\nusage: mix cases|random [--ranks N] [--nodes N] [--node-env NAME=VALUE] [--one-process] [--seconds S] [--seed X] "
          "[--only CASE,...] [--out FILE] [--ours none|lsa|gin] [--spoil N] [--ahead N] [--hang-seconds S]\ncases:",
          text, what);
  for (const Job &job : kCases) fprintf(stderr, " %s", job.name);
  fputc('\n', stderr);
  return kUsage;
}

int main(int argc, char **argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  options = Options{4, 1, 1, mode == "cases" ? 8. : 60, 60, 1, 0, false, "", ""};
  if (mode != "cases" && mode != "random") return usage("which mode? ", "");
  for (int i = 2; i < argc; i += 2) {
    const std::string name = argv[i];
    const char *value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (name == "--one-process") {
      options.oneProcess = true, i--;
      continue;
    }
    if (!value) return usage("no value for ", argv[i]);
    if (name == "--ranks")
      options.ranks = atoi(value);
    else if (name == "--nodes")
      options.nodes = atoi(value);
    else if (name == "--node-env")
      options.nodeEnv = value;
    else if (name == "--seconds")
      options.seconds = atof(value);
    else if (name == "--seed")
      options.seed = strtoull(value, nullptr, 10);
    else if (name == "--spoil")
      options.spoil = strtoull(value, nullptr, 10);
    else if (name == "--only")
      options.only = value;
    else if (name == "--out")
      options.out = value;
    else if (name == "--ours" && (!strcmp(value, "none") || !strcmp(value, "lsa") || !strcmp(value, "gin")))
      options.ours = *value == 'l' ? DYNAMICCL_LSA : *value == 'g' ? DYNAMICCL_GIN : 0;
    else if (name == "--ahead")
      options.ahead = atoi(value);
    else if (name == "--hang-seconds")
      options.hangSeconds = atof(value);
    else
      return usage("unknown option ", argv[i]);
  }
  if (options.ranks < 1 || options.ranks > kMaxRanks) return usage("--ranks must be 1 to 16", "");
  if (options.nodes < 1 || options.nodes > options.ranks) return usage("--nodes must be 1 to the number of ranks", "");
  if (options.ahead < 1) return usage("--ahead must be 1 or more", "");
  if (options.oneProcess && options.nodes > 1) return usage("one process cannot be several nodes", "");
  void *at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) fail("mapping shared memory: %s", strerror(errno));
  shared = (Shared *)at;
  lookAround();
  if (sharedInNode() && shared->nccl < 23000) {
    fprintf(stderr,
            "mix: %d ranks of %d nodes on %d GPUs: ranks of a node can share one from NCCL 2.30 on, and this is %d.%d.%d; "
            "NCCL_LIB=FILE of cases.sh and stress.sh names another\n",
            options.ranks, options.nodes, options.gpus, shared->nccl / 10000, shared->nccl / 100 % 100, shared->nccl % 100);
    return kUsage;
  }
  if (options.oneProcess && ranksOfGpu() > 1) return usage("one process cannot have several ranks on a GPU", "");
  if (mode == "cases") return runCases();
  const Job job = {"random", options.oneProcess ? kThreads : kProcesses, mixRandom, 1, kMaxRanks, false, false, true};
  const Outcome o = runJob(job);
  fprintf(stderr, "mix: %s%s%s\n", o.code ? "FAIL " : "PASS", o.why.empty() ? "" : ": ", o.why.c_str());
  writeLine("gpu mix random", job, o);
  return o.code;
}
