/* SPDX-License-Identifier: Apache-2.0
 *
 * A case of ranks that fork while calls are under way, as programs do for loaders of data, compilers and shells. A child calls nothing of
 * CUDA and writes nothing that is shared.
 *
 * NCCL 2.32.3 has a thread among what a program's end destroys, without joining it, so a child that ends with its handlers is aborted
 * (std::terminate in __cxa_finalize), plain NCCL's no less; 2.28.9's are not. Later versions may be mended, so there either will do.
 */
#ifndef DYN_MIX_CHILDREN_H
#define DYN_MIX_CHILDREN_H

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "mix_comm_cases.h"

class Children {
 public:
  ~Children() {
    for (const Child &child : alive) kill(child.pid, SIGKILL);
  }

  // In turn: at once, at the end of a program with its handlers, in another program, and as that end some seconds later.
  void add() {
    const int way = number++ % 4;
    doing("forking a child of way %d", way);
    const pid_t pid = fork();
    if (pid == 0) live(way);
    if (pid < 0) fail("fork: %s", strerror(errno));
    alive.push_back({pid, way});
  }

  // Of those that have ended, how: any but 0 is a failure of the rank.
  void look() {
    for (size_t i = 0; i < alive.size();) {
      int status = 0;
      const pid_t ended = waitpid(alive[i].pid, &status, WNOHANG);
      if (ended < 0 || (status != 0 && !isAbortedByNccl(alive[i].way, status))) fail("a child of way %d ended with status %x", alive[i].way, status);
      if (ended > 0) alive.erase(alive.begin() + i);
      else i++;
    }
  }

  void wait() {
    const double begin = nowSeconds();
    doing("waiting for children to end");
    for (look(); !alive.empty() && nowSeconds() - begin < kHangSeconds; look()) usleep(1000), beat();
    if (!alive.empty()) fail("%zu children do not end", alive.size());
  }

 private:
  static constexpr double kHangSeconds = 20;
  struct Child {
    pid_t pid;
    int way;
  };
  std::vector<Child> alive;
  unsigned number = 0;

  static bool isAbortedByNccl(int way, int status) { return way % 2 == 1 && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && shared->nccl >= 23200; }

  [[noreturn]] static void live(int way) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (way == 0) _exit(0);
    if (way == 2) execl("/bin/sh", "sh", "-c", "exit 0", (char *)nullptr);
    if (way == 3) sleep(3);  // longer than peers take to see that a process is dead
    if (way == 2) _exit(1);
    exit(0);
  }
};

// Calls and replays of all ranks go on, right, beside children that come and go; what peers know of the rank stays.
static void caseChildren(Rank &r) {
  Random random{options.seed};
  Comm world = newWorld(r.rank, "world", 0, 1);
  Graph graph;
  std::vector<Rank::Member> members;
  for (int i = 0; i < kGraphCalls; i++) members.push_back({&world, drawCall(random), 0});
  graph.capture(r, 0, members, false, (uint32_t)random.next(), 0, 1, false);
  Children children;
  double forked = nowSeconds();
  const double deadline = nowSeconds() + options.seconds;
  for (uint64_t k = 0; goOn(r.rank, k, deadline); k++) {
    r.eager(world, k % 4 ? callOf(kAllReduce, kBfloat16, kSum, 4096) : drawCall(random), (uint32_t)random.next(), k % kStreams);
    if (k % 8 == 0) graph.replay(0);
    if (nowSeconds() - forked > 0.2) children.add(), forked = nowSeconds();
    children.look();
  }
  graph.wait();
  r.drain();
  children.wait();
  exercise(r, world, random, 200);
  r.drain();
  graph.drop();
  endComm(&world);
}

#endif
