/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank is killed in the middle of calls that others wait for it in. Where kernels of ours wait, these hear of it by NCCL's error within
 * kWordSeconds, unasked, and a line on standard error names who died (docs/design.md, decision 27). Where NCCL's kernel waits, NCCL promises
 * nothing, but the next call of a communicator that has kernels of ours is refused. Either way nothing of theirs stays on the GPU.
 */
#ifndef DYN_MIX_KILLED_H
#define DYN_MIX_KILLED_H

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include "mix_comm_cases.h"
#include "mix_ours.h"

// What this process writes to standard error, heard until it is over, and then passed on.
class Heard {
 public:
  Heard() : file(memfd_create("mix-heard", MFD_CLOEXEC)), real(dup(STDERR_FILENO)) {
    if (file < 0 || real < 0 || dup2(file, STDERR_FILENO) < 0) fail("standard error cannot be heard");
  }
  // Looks at what was written so far.
  bool has(const std::string &text) const { return all().find(text) != std::string::npos; }
  void over() {
    if (file < 0) return;
    dup2(real, STDERR_FILENO);
    const std::string text = all();
    if (write(real, text.data(), text.size()) < 0) {}
    close(real), close(file);
    file = -1;
  }
  ~Heard() { over(); }

 private:
  int file, real;
  std::string all() const {
    std::string text;
    char piece[4096];
    for (ssize_t n; (n = pread(file, piece, sizeof piece, (off_t)text.size())) > 0;) text.append(piece, (size_t)n);
    return text;
  }
};

// Who dies makes kMet calls, the others more, of which one waits for ever: one of the first kMet + 1.
static const int kMet = 20, kOfOthers = 40;

// Which kernels may be the one that waits. Calls of a stream run in their order, so ours behind one of NCCL's hear nothing.
enum Waits { kNcclWaits, kEitherWaits, kOursWait };
static const char *const kWaitsNames[] = {"NCCL's kernel", "NCCL's kernel or ours", "our kernel"};

static void caseKilled(Rank &r) {
  // A process that is gone is found in a second or two; on a host of its own it is told by the others of its host, or after 10 s.
  const double bound = options.nodeEnv.empty() ? 5 : 15, moreAt = 3;
  Random random{options.seed};
  Comm world = newWorld(r.rank, "world", 0, 1);
  exercise(r, world, random, 400);
  const Call small = callOf(kAllReduce, kFloat, kSum, 1024);
  const bool ours = callUntilOurs(r, world, small, random, options.ours ? 20 : 2), has = allHave(r, world, hasOurs(world));
  if (options.ours == DYNAMICCL_LSA ? !ours : options.ours && runByOurs() == 0) fail("no kernels of ours over %s came to run AllReduce of 1 KiB", oursName());
  barrier("before a rank dies");
  const int dead = options.ranks - 1;
  const bool dies = r.rank == dead;
  Heard heard;
  ncclResult_t word = ncclSuccess;
  int byOurs = 0;
  double told = nowSeconds();
  auto call = [&] {
    const Ready ready = r.prepare(world, small, r.graphBuffers[0][0], (uint32_t)random.next(), nullptr);
    r.issued(ready.call.kind, 1);  // never compared
    word = Rank::nccl(ready, r.streams[0]);
    told = nowSeconds();
  };
  for (int i = 0; i < (dies ? kMet : kOfOthers) && word == ncclSuccess; i++) {
    doing("a call among which a rank dies");
    const uint64_t before = runByOurs();
    call();
    if (i <= kMet) byOurs += runByOurs() > before;
  }
  if (dies) {
    heard.over();
    r.mine->kernels += runByOurs();
    __atomic_store_n(&self->ended, 1, __ATOMIC_RELEASE);
    raise(SIGKILL);
  }
  const Waits waits = byOurs == 0 ? kNcclWaits : byOurs <= kMet ? kEitherWaits : kOursWait;
  const double begin = nowSeconds();
  bool more = false;
  doing("waiting for a word of the rank that died");
  while (word == ncclSuccess && nowSeconds() - begin < bound) {
    if (waits != kOursWait && has && !more && nowSeconds() - begin > bound - moreAt) more = true, call();
    if (word == ncclSuccess) NC(ncclCommGetAsyncError(world.comm, &word));
    told = nowSeconds();
    usleep(1000);
    beat();
  }
  const std::string named = options.nodeEnv.empty() ? "rank " + std::to_string(dead) + ", process " + std::to_string(shared->ranks[dead].pid) + ", is dead"
                                                    : "rank " + std::to_string(dead);
  const bool isNamed = heard.has(named);
  heard.over();
  snprintf(r.mine->said, sizeof r.mine->said, "%s waited%s: %s after %.1f s%s, the rank was%s named", kWaitsNames[waits],
           waits == kOursWait ? "" : ", of which NCCL promises nothing", word == ncclSuccess ? "no word" : ncclGetErrorString(word), told - begin,
           more ? ", by a further call" : "", isNamed ? "" : " not");
  fprintf(stderr, "mix: rank %d: %s\n", r.rank, r.mine->said);
  const bool promised = has && (waits == kOursWait || more || word == ncclSuccess); // else it is NCCL's own word
  if (promised && word != ncclRemoteError) fail("a rank died, and within %g s there was no ncclRemoteError: %s", bound, r.mine->said);
  if (promised && !isNamed) fail("a rank died, and standard error does not say \"%s\"", named.c_str());
  abortComm(&world);
  doing("waiting for calls of a communicator with a dead rank to leave the GPU");
  CU(cudaStreamSynchronize(r.streams[0]));
  beat();
  // Who ends before the others have heard is another rank that has died.
  doing("waiting for the others that a rank has died for");
  __atomic_store_n(&r.mine->heard, 1, __ATOMIC_RELEASE);
  for (int i = 0; i < dead; i++)
    while (!__atomic_load_n(&shared->ranks[i].heard, __ATOMIC_ACQUIRE)) usleep(1000);
  beat();
}

#endif
