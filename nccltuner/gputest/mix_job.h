/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs one job in processes of its own and watches it: a rank without progress is a hang, a rank that ends early ends
 * all. Says which call every rank was in. The parent never touches CUDA, which does not survive a fork.
 */
#ifndef DYN_MIX_JOB_H
#define DYN_MIX_JOB_H

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "mix_children.h"
#include "mix_comm_cases.h"
#include "mix_ends.h"
#include "mix_exchange.h"
#include "mix_killed.h"
#include "mix_ours.h"

static const double kSayEverySeconds = 10;

enum Layout {
  kProcesses,
  kThreads,
  kOneThread,
  kUneven
};  // one process a GPU; one process with a thread a GPU; with one thread; the last rank alone, a thread of one process for each of the others
struct Job {
  const char *name;
  Layout layout;
  void (*run)(Rank &);
  int leastRanks;
  int mostOfGpu = kMaxRanks;  // ranks that may share one
  bool kills = false;         // the last rank, which is no failure
  bool byName = false;        // run only where it is asked for
  bool ours = false;          // has calls enough that kernels of ours over load and store run some of them, or it fails
};
struct Outcome {
  ExitCode code;
  double seconds;
  std::string why;
};

static void runRank(const Job &job, int rank, bool firstOfProcess) {
  self = &shared->ranks[rank];
  self->pid = (int)getpid();
  std::unique_ptr<Rank> r(new Rank);
  r->start(rank);
  barrier("started");
  job.run(*r);
  if (firstOfProcess) self->kernels += runByOurs();
  doing("done");
  if (!job.kills) barrier("done");
  __atomic_store_n(&self->ended, 1, __ATOMIC_RELEASE);
}

static void beOnNode(int node) {
  setenv("NCCL_HOSTID", ("mix-node" + std::to_string(node)).c_str(), 1);
  const size_t equals = options.nodeEnv.find('=');
  if (equals == std::string::npos) return;
  std::string value = options.nodeEnv.substr(equals + 1);
  const size_t at = value.find("%d");
  if (at != std::string::npos) value.replace(at, 2, std::to_string(node));
  setenv(options.nodeEnv.substr(0, equals).c_str(), value.c_str(), 1);
}

static void runProcess(const Job &job, int index) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (job.layout == kProcesses) {
    if (options.nodes > 1) beOnNode(index * options.nodes / options.ranks);
    runRank(job, index, true);
  } else if (job.layout == kThreads || job.layout == kUneven) {
    options.oneProcess = true;
    const int alone = options.ranks - 1, first = index ? alone : 0, end = index || job.layout == kThreads ? options.ranks : alone;
    std::vector<std::thread> threads;
    for (int i = first; i < end; i++) threads.emplace_back([&job, i, first] { runRank(job, i, i == first); });
    for (auto &t : threads) t.join();
  } else {
    std::vector<std::unique_ptr<Rank>> ranks;
    for (int i = 0; i < options.ranks; i++) {
      self = &shared->ranks[i];
      ranks.emplace_back(new Rank);
      ranks.back()->start(i);
    }
    caseInitAll(ranks);
    shared->ranks[0].kernels = runByOurs();
    for (int i = 0; i < options.ranks; i++) __atomic_store_n(&shared->ranks[i].ended, 1, __ATOMIC_RELEASE);
  }
  _exit(kRight);  // no destructors: what a driver still holds dies with the process
}

static void sayWhere(const char *head) {
  fprintf(stderr, "mix: %s\n", head);
  for (int i = 0; i < options.ranks; i++) {
    const SharedRank &r = shared->ranks[i];
    fprintf(stderr, "mix:   rank %d%s: %llu calls issued, %llu compared; host: %s%s%s\n", i, r.ended ? " (ended)" : "",
            (unsigned long long)r.issued, (unsigned long long)r.compared, r.doing, r.why[0] ? "; gave up: " : "",
            r.why);
    uint64_t newest = 0;
    for (int k = 0; k < kRecent; k++) newest = std::max(newest, r.recentCall[k]);
    for (int k = 3; k >= 0; k--)
      if (newest > (uint64_t)k)
        fprintf(stderr, "mix:     %s%s\n", k ? "" : "newest: ", r.recent[(newest - k) % kRecent]);
  }
}

// The sum over ranks of a counter.
static uint64_t sum(uint64_t SharedRank::*field) {
  uint64_t all = 0;
  for (int i = 0; i < options.ranks; i++) all += shared->ranks[i].*field;
  return all;
}

static void sayProgress(double seconds) {
  fprintf(stderr, "mix: %4.0f s, %llu calls, %llu replays, %llu elements compared, %llu wrong\n", seconds,
          (unsigned long long)sum(&SharedRank::compared), (unsigned long long)sum(&SharedRank::replays),
          (unsigned long long)sum(&SharedRank::elements), (unsigned long long)sum(&SharedRank::wrong));
}

static const int kFloat8Nccl = 22400, kFloat8Major = 9;  // NCCL refuses them on other GPUs ("FP8 reduction support begins with sm90")

// What machine and library these are, asked in a process of its own: CUDA does not survive a fork.
static void lookAround() {
  const pid_t pid = fork();
  if (pid == 0) {
    CU(cudaGetDeviceCount(&shared->gpus));
    NC(ncclGetVersion(&shared->nccl));
    shared->leastMajor = kFloat8Major;
    for (int g = 0, major; g < shared->gpus; g++) {
      CU(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, g));
      if (major < shared->leastMajor) shared->leastMajor = major;
    }
    _exit(kRight);
  }
  if (pid < 0 || waitpid(pid, nullptr, 0) != pid || shared->gpus < 1) fail("no GPU is to be seen");
  options.gpus = shared->gpus;
  options.float8 = shared->nccl >= kFloat8Nccl && shared->leastMajor >= kFloat8Major;
}

static Outcome runJob(const Job &job) {
  memset(shared, 0, sizeof *shared);
  shared->stopAt = ~0ull;
  const int processes = job.layout == kProcesses ? options.ranks : job.layout == kUneven ? 2 : 1;
  std::vector<pid_t> pids;
  fflush(stdout);
  for (int i = 0; i < processes; i++) {
    const pid_t pid = fork();
    if (pid == 0) runProcess(job, i);
    if (pid < 0) fail("fork: %s", strerror(errno));
    pids.push_back(pid);
  }
  const double begin = nowSeconds();
  Outcome o = {kRight, 0, ""};
  std::vector<uint64_t> beats(options.ranks, ~0ull);
  std::vector<double> changed(options.ranks, begin);
  double said = begin;
  for (int left = processes; left > 0 && o.code == kRight;) {
    usleep(5000);
    for (int i = 0; i < processes; i++) {
      int status;
      if (pids[i] < 0 || waitpid(pids[i], &status, WNOHANG) != pids[i]) continue;
      pids[i] = -1, left--;
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
      if (job.kills && i == processes - 1 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) continue;
      o.code = kFailed;
      o.why = (WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                   : "exit " + std::to_string(WEXITSTATUS(status))) +
              " of process " + std::to_string(i);
    }
    const double now = nowSeconds();
    for (int i = 0; i < options.ranks && o.code == kRight; i++) {
      const SharedRank &r = shared->ranks[i];
      const uint64_t b = __atomic_load_n(&r.beat, __ATOMIC_ACQUIRE);
      if (b != beats[i] || __atomic_load_n(&r.ended, __ATOMIC_ACQUIRE)) beats[i] = b, changed[i] = now;
      if (now - changed[i] <= options.hangSeconds) continue;
      o.code = kHang;
      o.why = "rank " + std::to_string(i) + " made no progress for " + std::to_string((int)options.hangSeconds) +
              " s: " + r.doing;
    }
    if (now - said >= kSayEverySeconds) said = now, sayProgress(now - begin);
  }
  o.seconds = nowSeconds() - begin;
  if (o.code != kRight) sayWhere(o.code == kHang ? "HANG" : "a rank failed");
  for (int i = 0; i < options.ranks && o.code == kFailed; i++)
    if (shared->ranks[i].why[0]) o.why += std::string("; rank ") + std::to_string(i) + ": " + shared->ranks[i].why;
  for (pid_t p : pids)
    if (p > 0) kill(p, SIGKILL);
  // A process whose GPU hangs may take long to die: it is left to init then.
  for (int tries = 0; tries < 1000; tries++) {
    bool all = true;
    for (pid_t &p : pids)
      if (p > 0 && waitpid(p, nullptr, WNOHANG) == p) p = -1;
    for (pid_t p : pids) all &= p < 0;
    if (all) break;
    usleep(10000);
  }
  const uint64_t wrong = sum(&SharedRank::wrong);
  if (wrong && o.code == kRight) o.code = kWrong, o.why = std::to_string(wrong) + " wrong elements";
  if (o.code == kRight && sum(&SharedRank::elements) == 0) o.code = kFailed, o.why = "nothing was compared";
  const bool demanded = job.ours && job.layout == kProcesses && options.ours == DYNAMICCL_LSA && options.nodes == 1 && options.ranks > 1;
  if (o.code == kRight && demanded && sum(&SharedRank::kernels) == 0) o.code = kFailed, o.why = "kernels of ours ran none of the calls (--ours lsa)";
  return o;
}

#endif
