/* SPDX-License-Identifier: Apache-2.0
 *
 *   LD_PRELOAD=libdynamiccl.so test_direct FOLDER LIBCUDA     FOLDER has the fake libnccl.so.2
 * Calls whose buffers the program has registered, with lsa/direct in the plan: each rank's buffers lie elsewhere, or in no window,
 * and every element is compared. That peers write straight into a window shows where NCCL tells of another place than the
 * window's own.
 */
#include "lsa_steps.h"

#include "exchange.h"

#define GUARD 64
#define SLOT_BYTES ((MOST * MAX_RANKS + GUARD) * sizeof(float))
#define WINDOW_BYTES (1 << 20)
_Static_assert(WINDOW_BYTES >= SLOTS * SLOT_BYTES, "all slots lie in a window");
#define PAGE 4096 /* windows begin at pages, at another one on each rank */
#define MEMORY_BYTES (WINDOW_BYTES + MAX_RANKS * PAGE)
#define PROGRAM_FLAG 1 /* NCCL_WIN_COLL_SYMMETRIC */

enum { IN, OUT, NUM_WINDOWS };
static char *memory[NUM_WINDOWS], *window[NUM_WINDOWS]; /* this rank's */
static struct fake_peers windows[NUM_WINDOWS] = {{.magic = FAKE_PEERS}, {.magic = FAKE_PEERS}}; /* what NCCL has */
static float *plainIn[SLOTS], *plainOut[SLOTS];

static struct handles {
  struct { uint8_t bytes[64]; } of[NUM_WINDOWS][MAX_RANKS];
} *handles;

static uint32_t ableNow;
static uint32_t choose_noting(void *chooser, int collective, uint64_t bytes, uint32_t able) {
  if (!(able & DYN_ABLE_LOOK)) ableNow = able;
  return choose(chooser, collective, bytes, able);
}

static uintptr_t comm;
static void ready(void *chooser) { (void)chooser; }
static int make_comm(void) {
  CHECK(preload->device->expect(lsa, &planned, choose_noting, ready));
  comm = COMM;
  return 0;
}

static int registering;
static void **leftIn;
static int leave_handle(void) {
  *leftIn = &windows[registering];
  return 0;
}
static void register_window(int w) {
  static void *win[NUM_WINDOWS];
  registering = w, leftIn = &win[w];
  fake->inside = leave_handle;
  CHECK(find("ncclCommWindowRegister")(COMM, (uintptr_t)window[w], WINDOW_BYTES, (uintptr_t)&win[w], PROGRAM_FLAG, 0, 0, 0, 0) == 0);
  fake->inside = succeed;
}

static void allocate(void) {
  int (*handle_of)(void *, CUdeviceptr) = dlsym(dlopen(driverPath, RTLD_NOW), "cuIpcGetMemHandle");
  for (int w = 0; w < NUM_WINDOWS; w++) {
    CUdeviceptr at;
    CHECK(cuda.cuMemAlloc_v2(&at, MEMORY_BYTES) == 0);
    memory[w] = (char *)(uintptr_t)at;
    window[w] = memory[w] + rank * PAGE;
    CHECK(handle_of(&handles->of[w][rank], at) == 0);
  }
  meet();
}

/* As NCCL maps windows: all of the memory in which one lies. What it tells begins as far into a peer's memory as this rank's
 * window does into this rank's. */
static void map(void) {
  struct handle { uint8_t bytes[64]; };
  int (*open_handle)(CUdeviceptr *, struct handle, unsigned) = dlsym(dlopen(driverPath, RTLD_NOW), "cuIpcOpenMemHandle_v2");
  for (int w = 0; w < NUM_WINDOWS; w++)
    for (int r = 0; r < numRanks; r++) {
      CUdeviceptr at = (CUdeviceptr)(uintptr_t)memory[w];
      struct handle handle;
      memcpy(&handle, &handles->of[w][r], sizeof handle);
      if (r != rank) CHECK(open_handle(&at, handle, 1) == 0);
      windows[w].base[r] = (char *)(uintptr_t)at + rank * PAGE;
    }
}

static void begin_direct(void) {
  int (*init)(uintptr_t *, int, struct fake_id, int) = (int (*)(uintptr_t *, int, struct fake_id, int))(void *)find("ncclCommInitRank");
  struct fake_id id = {""};
  prepare();
  memcpy(plainIn, in, sizeof in);
  memcpy(plainOut, out, sizeof out);
  allocate();
  map();
  fake->inside = make_comm;
  CHECK(init(&comm, numRanks, id, rank) == 0);
  fake->inside = succeed;
  if (rank == 0) CHECK(find("ncclCommWindowRegister")(OTHER_COMM, PAGE, PAGE, (uintptr_t)&registering, PROGRAM_FLAG, 0, 0, 0, 0) == 0); /* counts there alone */
  for (int w = 0; w < NUM_WINDOWS; w++) register_window(w);
}

/* Where this rank's buffers lie: in both windows, in one, or in none. */
static void place(int slot, uint64_t how, bool inPlace) {
  size_t offset = (size_t)slot * SLOT_BYTES + how / 16 % 4 * 16;
  in[slot] = how & 3 ? (float *)(window[IN] + offset) : plainIn[slot];
  out[slot] = how & 12 ? (float *)(window[OUT] + offset) : plainOut[slot];
  if (inPlace) in[slot] = out[slot];
}

static void direct(void) {
  static const int collectives[] = {ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, ALL_TO_ALL};
  unsigned inWindows = 0;
  begin_direct();
  for (uint64_t n = 0; n < 240; n += SLOTS) {
    struct step steps[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
      uint64_t r = random_of(n + (uint64_t)i), own = r >> 60 < 8 ? random_of(r + (uint64_t)rank) : ~(uint64_t)0 - (uint64_t)rank * 16;
      struct step *s = &steps[i];
      *s = (struct step){.collective = collectives[r % 5], .root = (int)(r >> 8 & 7) % numRanks, .count = (1 + (r >> 16) % MOST + 3) / 4 * 4,
                         .action = LSA(DYN_KERNEL_DIRECT, 1 + (r >> 40) % 3), .stream = streams[(r >> 44) % STREAMS], .seed = r};
      if (s->count > MOST) s->count = MOST;
      /* Of AllToAll also some ranks alone. */
      place(i, own, (s->collective == ALL_REDUCE && r >> 48 & 1) || (s->collective == ALL_TO_ALL && r >> 48 & 1 && (r >> 49 & 1 || rank & 1)));
      fill(s, i);
      if (in[i] == out[i])
        for (size_t e = 0; e < s->count * parts_in(s); e++) in[i][e] = value_of(s, rank, e);
      make_call(s, i, random_of(n * 31 + (uint64_t)i * 7 + (uint64_t)rank));
      const float *needed = s->collective == REDUCE_SCATTER ? in[i] : out[i], *plain = s->collective == REDUCE_SCATTER ? plainIn[i] : plainOut[i];
      CHECK(!!(ableNow & DYN_ABLE_WINDOWS) == (needed != plain), "%s: %x", names[s->collective], ableNow);
      inWindows += needed != plain;
    }
    wait_for_all();
    for (int i = 0; i < SLOTS; i++) compare(&steps[i], i, true);
    meet();
  }
  CHECK(inWindows > 100);
}

/* NCCL tells of another place for this rank's window: peers write there, and not into the buffer; where one rank's buffer lies in
 * no window, nobody does. */
static void elsewhere(void) {
  begin_direct();
  CUdeviceptr decoy;
  CHECK(cuda.cuMemAlloc_v2(&decoy, MEMORY_BYTES) == 0);
  for (int r = 0; r < numRanks; r++) windows[OUT].base[r] = (char *)(uintptr_t)decoy + PAGE * rank;
  memset((void *)(uintptr_t)decoy, 0xee, MEMORY_BYTES);
  register_window(OUT); /* once more: the newest of one address counts */
  struct step s = {.collective = ALL_GATHER, .count = 400, .action = LSA(DYN_KERNEL_DIRECT, 1), .stream = streams[0], .seed = 5};
  for (int all = 0; all < 2; all++) {
    place(0, all || rank > 0 ? 15 : 0, false);
    fill(&s, 0);
    make_call(&s, 0, 0);
    wait_for_all();
    if (!all) compare(&s, 0, true);
    meet();
  }
  for (int r = 0; r < numRanks; r++) CHECK(out[0][(size_t)r * s.count] == (r == rank ? value_of(&s, r, 0) : -1), "part %d", r);
  int peer = (rank + 1) % numRanks; /* whose window begins at another page */
  float *left = (float *)((char *)(uintptr_t)decoy + peer * PAGE) + (size_t)rank * s.count;
  CHECK(*left == value_of(&s, rank, 0), "what this rank sent is %g", *left);
  /* In place ranks swap: here with what the AllGather left there, of which each one has a half. */
  struct step t = {.collective = ALL_TO_ALL, .count = s.count, .action = s.action, .stream = streams[0], .seed = 6};
  place(0, 15, true);
  for (size_t i = 0; i < t.count * (size_t)numRanks; i++) out[0][i] = value_of(&t, rank, i);
  make_call(&t, 0, 0);
  wait_for_all();
  size_t swapped = rank < peer ? 0 : t.count - 1;
  CHECK(out[0][(size_t)peer * t.count + swapped] == value_of(&s, rank, swapped), "part %d", peer);
  CHECK(left[swapped] == value_of(&t, rank, (size_t)peer * t.count + swapped), "what this rank swapped is %g", left[swapped]);
  meet();
}

/* A window that goes is none any more, and a buffer beyond a window's end never was in it. */
static void gone(void) {
  begin_direct();
  struct step s = {.collective = ALL_GATHER, .count = 400, .action = LSA(DYN_KERNEL_DIRECT, 2), .stream = streams[0], .seed = 9};
  for (int round = 0; round < 3; round++) {
    place(0, 15, false);
    if (round == 1) out[0] = (float *)(window[OUT] + WINDOW_BYTES - 100 * sizeof(float)); /* there is memory behind it */
    if (round == 2) CHECK(find("ncclCommWindowDeregister")(COMM, (uintptr_t)&windows[OUT], 0, 0, 0, 0, 0, 0, 0) == 0);
    fill(&s, 0);
    make_call(&s, 0, (uint64_t)rank);
    CHECK(!!(ableNow & DYN_ABLE_WINDOWS) == (round == 0), "round %d", round);
    wait_for_all();
    compare(&s, 0, true);
    meet();
  }
}

static int refuse(void) { return 5; }

/* NCCL has given its memory back and taken it again, perhaps elsewhere: in between nobody writes into a window where it was, and then where it is. */
static void suspended(void) {
  begin_direct();
  CUdeviceptr decoy;
  CHECK(cuda.cuMemAlloc_v2(&decoy, MEMORY_BYTES) == 0);
  struct step s = {.collective = ALL_GATHER, .count = 400, .action = LSA(DYN_KERNEL_DIRECT, 2), .stream = streams[0], .seed = 11};
  char *base[MAX_RANKS];
  memcpy(base, windows[OUT].base, sizeof base);
  for (int r = 0; r < numRanks; r++) windows[OUT].base[r] = (char *)(uintptr_t)decoy + PAGE * rank;
  register_window(OUT); /* once more: the newest of one address counts */
  for (int round = 0; round < 4; round++) {
    if (round == 0) CHECK(find("ncclCommSuspend")(COMM, 1, 0, 0, 0, 0, 0, 0, 0) == 0);
    if (round == 1) memcpy(windows[OUT].base, base, sizeof base);
    if (round == 1) CHECK(find("ncclCommResume")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    if (round == 2) group_start();
    if (round == 2) CHECK(find("ncclCommSuspend")(COMM, 1, 0, 0, 0, 0, 0, 0, 0) == 0 && find("ncclCommResume")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    if (round == 2) group_end();
    fake->inside = round == 3 ? refuse : succeed;
    if (round == 3) CHECK(find("ncclCommSuspend")(COMM, 1, 0, 0, 0, 0, 0, 0, 0) == 5);
    fake->inside = succeed;
    place(0, 15, false);
    fill(&s, 0);
    make_call(&s, 0, (uint64_t)rank);
    CHECK(!!(ableNow & DYN_ABLE_WINDOWS) == (round & 1), "round %d", round);
    wait_for_all();
    compare(&s, 0, true);
    meet();
  }
}

/* AllToAllv: with so little scratch memory 64 KiB of a part go in a round of 2 ranks, 40 of 3 and 32 of 4. */
#define MOST_APART 50000 /* elements of a part */
static float *apart; /* a result in no window */
static void begin_exchanges(void) {
  CUdeviceptr at;
  setenv("DYNAMICCL_SCRATCH_MIB", "1", 1);
  begin_direct();
  CHECK(cuda.cuMemAlloc_v2(&at, WINDOW_BYTES) == 0);
  apart = (float *)(uintptr_t)at;
}

static void exchange_run(const struct exchange *x, float *recv) {
  int (*run)(const void *, const size_t *, const size_t *, void *, const size_t *, const size_t *, int, int, void *, void *) =
      (__typeof__(run))(void *)find("dynamicclAllToAllv");
  exchange_fill(x, (float *)window[IN], recv);
  CHECK(run(window[IN], x->sendCounts, x->sendOffsets, recv, x->recvCounts, x->recvOffsets, FLOAT32, DYN_PATH_LSA, (void *)COMM, streams[x->seed % STREAMS]) == 0);
}

/* Each rank's result lies at another place of the window, or in none; with calls of the plan between in the same memory. */
static void exchanges(void) {
  begin_exchanges();
  for (uint64_t n = 0; n < 60; n++) {
    uint64_t r = random_of(n), own = r & 3 ? ~(uint64_t)0 : random_of(r + (uint64_t)rank);
    float *recv = own & 3 ? (float *)window[OUT] + random_of(r - (uint64_t)rank) % 100 : apart;
    struct step s = {.collective = ALL_GATHER, .count = 1 + (r >> 8) % MOST, .action = LSA(DYN_KERNEL_DIRECT, 1 + (r >> 40) % 3), .stream = streams[(r >> 44) % STREAMS], .seed = r};
    struct exchange x;
    exchange_make(&x, n, MOST_APART);
    exchange_run(&x, recv);
    fill(&s, 0);
    make_call(&s, 0, own);
    wait_for_all();
    exchange_compare(&x, recv);
    compare(&s, 0, true);
    meet();
  }
}

/* As elsewhere: parts of more than a round go where NCCL has this rank's window, and none does where all is in a round, or one
 * rank's result lies in no window or reaches beyond it. */
static void exchanges_elsewhere(void) {
  begin_exchanges();
  CUdeviceptr decoy;
  CHECK(cuda.cuMemAlloc_v2(&decoy, MEMORY_BYTES) == 0);
  for (int r = 0; r < numRanks; r++) windows[OUT].base[r] = (char *)(uintptr_t)decoy + PAGE * rank;
  memset((void *)(uintptr_t)decoy, 0xee, MEMORY_BYTES);
  register_window(OUT);
  enum { ONE_APART, SMALL, BEYOND, DIRECT };
  for (int round = ONE_APART; round <= DIRECT; round++) {
    struct exchange x = {.seed = (uint64_t)round};
    const size_t each = round == SMALL ? 8000 : 30000, all = (size_t)numRanks * each;
    float *recv = round == ONE_APART && rank == 0 ? apart : (float *)window[OUT] + rank;
    if (round == BEYOND && rank == 0) recv = (float *)window[OUT] + WINDOW_BYTES / sizeof *recv - all + 1; /* there is memory behind */
    for (int r = 0; r < numRanks; r++) x.sendCounts[r] = x.recvCounts[r] = each, x.sendOffsets[r] = x.recvOffsets[r] = (size_t)r * each;
    exchange_run(&x, recv);
    wait_for_all();
    if (round != DIRECT) exchange_compare(&x, recv);
    meet();
    if (round != DIRECT) continue;
    for (int r = 0; r < numRanks; r++)
      for (size_t i = 0; i < each; i++) CHECK(recv[x.recvOffsets[r] + i] == (r == rank ? exchange_value(&x, r, rank, i) : -1), "element %zu of part %d", i, r);
    for (int peer = 0; peer < numRanks; peer++) { /* whose window begins at another page, and its result at another element */
      const float *left = (float *)((char *)(uintptr_t)decoy + peer * PAGE) + peer + (size_t)rank * each;
      for (size_t i = 0; i < each && peer != rank; i++) CHECK(left[i] == exchange_value(&x, rank, peer, i), "element %zu for rank %d is %g", i, peer, left[i]);
    }
  }
}

int main(int argc, char **argv) {
  char kernels[4096];
  begin_program(argc, argv, kernels);
  handles = mmap(NULL, sizeof *handles, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(handles != MAP_FAILED);
  play("direct", 2, direct);
  play("direct", 4, direct);
  play("elsewhere", 3, elsewhere);
  play("gone", 2, gone);
  play("suspended", 2, suspended);
  for (int ranks = 2; ranks <= MAX_RANKS; ranks++) play("exchanges", ranks, exchanges);
  play("exchanges elsewhere", 2, exchanges_elsewhere);
  unlink(kernels);
  return 0;
}
