/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is registered with NCCL (ncclMemAlloc, ncclCommWindowRegister, NCCL_WIN_COLL_SYMMETRIC): a piece of a window for each slot's
 * two buffers, at the same place on all ranks, as NCCL asks for. Calls have both buffers there, or the one that sends or gets, or none.
 */
#ifndef DYN_MIX_WINDOWS_H
#define DYN_MIX_WINDOWS_H

#include "mix_rank.h"

static const size_t kMostWindowed = 8 << 20;

static bool registersLocally() {
  const char *value = getenv("NCCL_LOCAL_REGISTER");
  return !value || strcmp(value, "0") != 0;
}
// Sends and receives ask for registered buffers on both sides or on none (addP2pToPlan of NCCL's src/enqueue.cc): where one side's are,
// results are wrong and kernels wait for ever.
static bool asksBothSides(const Call &c) { return (c.kind == kSendRecv || c.kind == kAllToAll) && registersLocally(); }

// NCCL is promised that all ranks' buffers are registered or none's, wherever it looks at that: in AllGather, and in sums of these types. Our
// kernels rest on it there, too, and nowhere else. (Its rings look at it as well, unless NCCL_LOCAL_REGISTER is 0.)
static bool registrationMatters(const Call &c) {
  if (c.kind == kAllGather || asksBothSides(c)) return true;
  if (c.kind != kAllReduce && c.kind != kReduceScatter) return false;
  return c.type >= kHalf && c.type != kDouble && (c.op == kSum || c.op == kAvg);
}

// Before 2.30.3 NCCL's LL kernels for registered memory read the last bytes of 8 wrongly from an address that is no multiple of 4 (loadPack
// of src/device/op128.h), so results of types of 1 and 2 bytes are wrong by NCCL alone, and are not asked for.
static const int kReadsAnyAddress = 23003;
static void readable(Call *c, int ranks) {
  const int inWord = (int)(4 / sizeOf(c->type));
  if (shared->nccl >= kReadsAnyAddress || inWord < 2) return;
  const size_t step = 4 * (size_t)ranks; // parts of all ranks begin at one
  c->shift -= c->shift % inWord;
  c->bytes = c->bytes < step ? step : c->bytes - c->bytes % step;
}

// From then on NCCL takes an AllReduce that averages floats for one that its kernels for registered memory have, and fails
// (nccltuner/gputest/device_types.py): not asked for either.
static bool isMissing(const Call &c) {
  return shared->nccl >= kReadsAnyAddress && c.kind == kAllReduce && c.op == kAvg && c.type >= kHalf && c.type != kDouble;
}

class Windows {
 public:
  bool apart = false; // in some calls one rank's buffers are elsewhere

  // All ranks, with nothing of theirs under way.
  void make(const Comm &on, size_t most = kMostWindowed) {
    comm = on.comm, ranks = on.n, me = on.me;
    const size_t room = most + 2 * kEdgeBytes, bytes = room * 2 * kSlots;
    NC(ncclMemAlloc((void **)&memory, bytes));
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    doing("registering a window of %zu bytes", bytes);
    ncclWindow_t window = nullptr;
    settle(comm, ncclCommWindowRegister(comm, memory, bytes, &window, NCCL_WIN_COLL_SYMMETRIC), "ncclCommWindowRegister");
    handle = window;
#endif
    for (int i = 0; i < kSlots; i++) {
      char *const a = memory + room * 2 * i, *const b = a + room;
      both.of[i] = {a, b}, sends.of[i] = {a, nullptr}, gets.of[i] = {nullptr, b};
    }
    beat();
  }

  // What a call has in place of its slot's buffers; it may be made smaller for that. Every rank draws alike.
  const Instead *draw(Random &random, const Comm &on, Call *call) {
    const unsigned how = random.below(8), one = random.below(4), who = random.below(1 << 16);
    if (!comm || on.comm != comm || how == 0 || isMissing(*call)) return nullptr;
    while (call->bytes > kMostWindowed) call->bytes >>= 2;
    readable(call, on.n);
    if (apart && one == 0 && !registrationMatters(*call) && (int)(who % ranks) == me) return nullptr;
    if (asksBothSides(*call)) return &both;
    return how == 1 ? &sends : how == 2 ? &gets : &both;
  }

  // One buffer is registered, and the other one is not.
  const Instead *half(bool gives) const { return gives ? &sends : &gets; }

  // With nothing under way.
  void end() {
    if (!comm) return;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    doing("deregistering a window");
    if (handle) settle(comm, ncclCommWindowDeregister(comm, handle), "ncclCommWindowDeregister");
    handle = nullptr;
#endif
    NC(ncclMemFree(memory));
    comm = nullptr;
    beat();
  }

 private:
  ncclComm_t comm = nullptr;
  int ranks = 0, me = 0;
  char *memory = nullptr;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  ncclWindow_t handle = nullptr;
#endif
  Instead both, sends, gets;
};

#endif
