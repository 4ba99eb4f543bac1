/* SPDX-License-Identifier: Apache-2.0
 *
 * The preload library in front of a fake NCCL and a fake driver:
 *   test_preload local FOLDER    NCCL loaded by the program for itself alone, as PyTorch does
 *   test_preload global FOLDER   NCCL in the program's own order of symbols
 *   test_preload none            no NCCL at all
 */
#include "forward_rig.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../preload.h"

#define KERNEL 64
#define OTHER 2
#define TOLD 256

static struct dyn_preload *preload;
static atomic_int *mask;
static struct fake_call *(*last)(void);

static struct dyn_preload_call inside;
static int succeed(void) { return 0; }
static int note_inside(void) { return inside = *preload->call(), FAKE_RESULT; }

/* Each call with each kind of stream: what NCCL reads in its mask, and what is left there. */
static void guards(struct fake_call *fake) {
  static const uintptr_t streams[] = {0, 1, 2, 0x5000, FAKE_CAPTURED, FAKE_INVALIDATED, FAKE_UNKNOWN};
  fake->inside = note_inside;
  for (size_t s = 0; s < sizeof streams / sizeof *streams; s++) {
    int captured = s >= 4;
    for (int i = 0; i < (int)NUM_CALLS; i++) {
      atomic_store(&preload->mask, NULL); /* no plugin: nothing is written */
      atomic_store(mask, OTHER | KERNEL);
      forwards(i, streams[s], fake);
      CHECK(fake->mask == (OTHER | KERNEL) && atomic_load(mask) == (OTHER | KERNEL));
      atomic_store(&preload->mask, mask);
      for (int way = 0; way < 4; way++) {
        int back = way & 1, tell = way & 2 ? TOLD : 0;
        atomic_store(mask, OTHER | KERNEL);
        atomic_store(&preload->restore, back ? KERNEL : 0);
        atomic_store(&preload->tell, tell);
        unsigned turns = atomic_load(&preload->turns);
        forwards(i, streams[s], fake);
        int guarded = captured && streams_call(i);
        int after = guarded ? OTHER | (back ? KERNEL : 0) | tell : OTHER | KERNEL;
        CHECK((fake->mask & DYN_MASK_EVENTS) == (guarded ? OTHER | tell : OTHER | KERNEL), "%s: %x", calls[i].name, fake->mask);
        CHECK(dyn_mask_guards(fake->mask) == (unsigned)guarded, "%s: %x", calls[i].name, fake->mask);
        CHECK(atomic_load(mask) == after, "%s left %x", calls[i].name, atomic_load(mask));
        CHECK(atomic_load(&preload->turns) - turns == (guarded ? 2u : 0u), "%s", calls[i].name);
        CHECK(inside.captured == guarded && inside.inGraph == (guarded && streams[s] != FAKE_UNKNOWN), "%s", calls[i].name);
        CHECK(preload->call()->depth == 0 && !preload->call()->captured && !preload->call()->looked);
      }
    }
  }
  fake->inside = NULL;
  atomic_store(&preload->tell, 0);
}

/* Whoever looks at the clock in this process. */
static atomic_uint clocks;
__attribute__((visibility("default"))) int clock_gettime(clockid_t which, struct timespec *now) {
  atomic_fetch_add(&clocks, 1);
  return (int)syscall(SYS_clock_gettime, which, now);
}

static struct fake_gpu *gpu;
static unsigned driverBefore, clocksBefore;
static void cost_begins(void) { driverBefore = atomic_load(&gpu->calls), clocksBefore = atomic_load(&clocks); }
static void cost_is(unsigned driver, const char *what) {
  unsigned asked = atomic_load(&gpu->calls) - driverBefore, read = atomic_load(&clocks) - clocksBefore;
  CHECK(asked == driver && read == 0, "%s: %u calls of the driver, %u looks at the clock", what, asked, read);
}

/* What a call that is not timed may cost (docs/design/timing.md, decision 9). */
static void costs(struct fake_call *fake) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  CHECK(driver != NULL && (gpu = dlsym(driver, "fake_gpu")) != NULL);
  atomic_store(mask, OTHER);
  for (int i = 0; i < (int)NUM_CALLS; i++) {
    bool nested = calls[i].real != NULL; /* NCCL makes two of it */
    for (int plugin = 0; plugin < 2 && streams_call(i); plugin++) {
      atomic_store(&preload->mask, plugin ? mask : NULL);
      cost_begins();
      forwards(i, 0x5000, fake);
      cost_is(plugin ? 1 + nested : 0, calls[i].name);
    }
  }
  /* NCCL drops a collective of nothing, captured or not, but for what goes from one rank to another. */
  static const char *const drops[] = {"ncclAllReduce", "ncclBroadcast", "ncclAllGather", "ncclReduceScatter", "ncclAlltoAll"};
  fake->inside = note_inside;
  for (size_t n = 0; n < 2 * sizeof drops / sizeof *drops; n++) {
    uintptr_t stream = n & 1 ? FAKE_CAPTURED : 0x5000, i = n / 2;
    cost_begins();
    CHECK(find(drops[i])(1, 2, 0, 7, 0, stream, stream, 0, 0) == FAKE_RESULT); /* with operator or root, or without */
    cost_is(0, drops[i]);
    CHECK(strcmp(fake->name, drops[i]) == 0 && inside.depth == 1 && inside.looked && !inside.captured && inside.key == 0 && preload->call()->depth == 0 &&
          !preload->call()->looked && preload->call()->comm == NULL, "%s", drops[i]);
  }
  find("ncclSend")(1, 0, 7, 0, 5, FAKE_CAPTURED, 0, 0, 0);
  CHECK(inside.captured);
  fake->inside = succeed; /* a group counts as begun when NCCL says so */
  cost_begins();
  find("ncclGroupStart")(0, 0, 0, 0, 0, 0, 0, 0, 0);
  find("ncclAllReduce")(1, 2, 8, 7, 0, 5, 0x5000, 0, 0);
  find("ncclAllReduce")(1, 2, 8, 7, 0, 6, 0x5001, 0, 0);
  find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0);
  cost_is(2, "a group of two");
  fake->inside = NULL;
}

/* Collectives of communicators of one rank, which NCCL copies: nothing is asked, captured or not; as of others in groups, and what goes from
 * rank to rank. */
static uintptr_t made;
static int make_that(void) { return *(uintptr_t *)last()->arguments[0] = made, 0; }
static int split_that(void) { return *(uintptr_t *)last()->arguments[3] = made, 0; }
static uintptr_t make(uintptr_t at, int ranks, struct fake_call *fake) {
  uintptr_t comm = 0;
  made = at;
  fake->inside = ranks > 0 ? make_that : split_that;
  if (ranks > 0) CHECK(((init_rank)dlsym(dlopen(NULL, RTLD_LAZY), "ncclCommInitRank"))((uintptr_t)&comm, ranks, (struct fake_id){""}, 0, 0) == 0);
  else CHECK(find("ncclCommSplit")(5, 0, 0, (uintptr_t)&comm, 0, 0, 0, 0, 0) == 0);
  CHECK(comm == at);
  fake->inside = note_inside;
  return comm;
}
static void is_lone(uintptr_t comm, bool is, const char *what) {
  for (int captured = 0; captured < 2; captured++) {
    uintptr_t stream = captured ? FAKE_CAPTURED : 0x5000;
    inside.depth = 7;
    cost_begins();
    CHECK(find("ncclAllReduce")(1, 2, 8, 7, 0, comm, stream, 0, 0) == FAKE_RESULT && find("ncclAllGather")(1, 2, 8, 7, comm, stream, 0, 0, 0) == FAKE_RESULT);
    if (is || !captured) cost_is(is ? 0 : 2, what);
    CHECK(inside.depth == !is && inside.captured == (!is && captured), "%s", what);
  }
}
static void lone(struct fake_call *fake) {
  atomic_store(&preload->mask, mask);
  uintptr_t first = make(FAKE_LONE, 1, fake);
  is_lone(first, true, "made of one rank");
  is_lone(0x6000, false, "another");
  is_lone(0, false, "none");
  find("ncclSend")(1, 0, 7, 0, first, FAKE_CAPTURED, 0, 0, 0);
  CHECK(inside.captured);
  fake->inside = succeed;
  find("ncclGroupStart")(0, 0, 0, 0, 0, 0, 0, 0, 0);
  fake->inside = note_inside;
  find("ncclAllReduce")(1, 2, 8, 7, 0, first, FAKE_CAPTURED, 0, 0);
  CHECK(inside.captured, "in a group");
  fake->inside = succeed;
  find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0);
  find("ncclCommDestroy")(first, 0, 0, 0, 0, 0, 0, 0, 0);
  fake->inside = note_inside;
  is_lone(first, false, "destroyed");
  is_lone(make(FAKE_LONE + 1, 0, fake), true, "split off");
  is_lone(make(FAKE_LONE + 1, 4, fake), false, "of four ranks at the address of one, which went unseen");
  is_lone(make(0x6000, 0, fake), false, "split off with others");
  for (int i = 0; i < 9; i++) is_lone(make(FAKE_LONE + 0x10 + (uintptr_t)i, 1, fake), i < 8, "one more");
  is_lone(make(FAKE_LONE + 0x10, 1, fake), true, "again");
  for (int i = 0; i < 9; i++) find(i & 1 ? "ncclCommDestroy" : "ncclCommAbort")(FAKE_LONE + 0x10 + (uintptr_t)i, 0, 0, 0, 0, 0, 0, 0, 0);
  CHECK(atomic_load(&preload->lone) == 0);
  fake->inside = NULL;
}

/* The thread's capture mode as NCCL finds it. */
static int (*exchange)(int *);
static int modeInside;
static int mode_now(void) {
  int mode = 7, found = (exchange(&mode), mode);
  exchange(&mode);
  return found;
}
static int look_inside(void) { return modeInside = mode_now(), FAKE_RESULT; }
static int look_and_begin(void) { return look_inside(), 0; }

/* A captured call, and the end of a group with one, may make connections; the thread's mode is its own again behind it. */
static void relaxes(struct fake_call *fake) {
  enum { GLOBAL, THREAD_LOCAL, RELAXED };
  void *driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  CHECK(driver != NULL && (exchange = (int (*)(int *))dlsym(driver, "cuThreadExchangeStreamCaptureMode")) != NULL);
  atomic_store(&preload->mask, mask);
  for (int before = GLOBAL; before <= RELAXED; before++) {
    int mode = before;
    exchange(&mode);
    function reduce = find("ncclAllReduce");
    fake->inside = look_inside;
    for (int captured = 0; captured < 2; captured++) {
      reduce(1, 1, 1, 1, 1, 1, captured ? FAKE_CAPTURED : 0x5000, 0, 0);
      CHECK(modeInside == (captured ? RELAXED : before) && mode_now() == before, "%d %d", modeInside, mode_now());
      fake->inside = look_and_begin; /* a group counts as begun when NCCL says so */
      find("ncclGroupStart")(0, 0, 0, 0, 0, 0, 0, 0, 0);
      find("ncclGroupStart")(0, 0, 0, 0, 0, 0, 0, 0, 0);
      reduce(1, 1, 1, 1, 1, 1, captured ? FAKE_CAPTURED : 0x5000, 0, 0);
      find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0);
      CHECK(modeInside == before, "the end of an inner group launches nothing");
      find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0);
      CHECK(modeInside == (captured ? RELAXED : before) && mode_now() == before, "%d %d", modeInside, mode_now());
      find("ncclGroupStart")(0, 0, 0, 0, 0, 0, 0, 0, 0);
      find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0);
      CHECK(modeInside == before, "the next group has nothing captured");
      fake->inside = look_inside;
    }
    fake->inside = NULL;
    mode = GLOBAL;
    exchange(&mode);
  }
}

static void announces(struct fake_call *fake) {
  struct fake_id id;
  for (size_t i = 0; i < sizeof id.bytes; i++) id.bytes[i] = (char)(i * 7);
  atomic_store(&preload->announced, 0);
  CHECK(((init_rank)dlsym(dlopen(NULL, RTLD_LAZY), "ncclCommInitRank"))(5, 8, id, 3, 0) == FAKE_RESULT);
  CHECK(memcmp(&id, &fake->id, sizeof id) == 0 && fake->arguments[0] == 5 && fake->arguments[1] == 8 && fake->arguments[2] == 3);
  CHECK(atomic_load(&preload->announced) == 1);
  id.bytes[127] = 'x';
  CHECK(((init_rank)dlsym(dlopen(NULL, RTLD_LAZY), "ncclCommInitRankConfig"))(6, 9, id, 4, (uintptr_t)&plainConfig) == FAKE_RESULT);
  CHECK(memcmp(&id, &fake->id, sizeof id) == 0 && fake->arguments[2] == 4 && fake->arguments[3] == (uintptr_t)&plainConfig);
  CHECK(atomic_load(&preload->announced) == 2);
  find("ncclCommInitAll")(0, 4, 0, 0, 0, 0, 0, 0, 0);
  CHECK(atomic_load(&preload->announced) == 6);
  find("ncclCommSplit")(0, (uintptr_t)-1, 0, 0, 0, 0, 0, 0, 0); /* no colour, no communicator */
  CHECK(atomic_load(&preload->announced) == 6);
  find("ncclCommSplit")(0, 0, 0, 0, 0, 0, 0, 0, 0);
  find("ncclCommShrink")(0, 0, 0, 0, 0, 0, 0, 0, 0);
  find("ncclCommInitRankScalable")(0, 0, 0, 0, 0, 0, 0, 0, 0);
  CHECK(atomic_load(&preload->announced) == 9);
  CHECK(find("ncclCommGrow")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 2 && atomic_load(&preload->announced) == 9, "not in this NCCL");
}

/* The network that a call's config names while NCCL looks at it: "" for none; and what is noted of it by then. */
static struct fake_call *looked;
static int configAt;
#define NO_CONFIG "no config"
static const char *netInside;
static unsigned notedInside;
static int look_at_config(void) {
  const struct dyn_nccl_config *config = (const struct dyn_nccl_config *)looked->arguments[configAt];
  netInside = config == NULL ? NO_CONFIG : config->netName == NULL ? "" : config->netName;
  notedInside = atomic_load(&preload->networks);
  return FAKE_RESULT;
}

#define NET_IS(AT, CALL, WANT, NOTED) \
  do { \
    configAt = (AT), netInside = "not called"; \
    atomic_store(&preload->networks, 0); \
    CHECK((CALL) == FAKE_RESULT, "%s", #CALL); \
    CHECK(strcmp(netInside, WANT) == 0, "%s: %s, not %s", #CALL, netInside, WANT); \
    CHECK(notedInside == (NOTED), "%s: %x is noted, not %x", #CALL, notedInside, (unsigned)(NOTED)); \
  } while (0)

/* Which network the program's communicators have beside a GIN of another one. Children without a config have their parent's. */
static void networks(struct fake_call *fake) {
  struct fake_id id = {{0}};
  struct dyn_nccl_config none = {.size = sizeof none, .magic = 0xcafebeef, .version = DYN_NCCL_CONFIG_VERSION, .splitShare = 1}, own = none, other = none, old = none, ib = none, sockets = none, newer = none;
  ib.netName = "ib", sockets.netName = "socket", newer.size += 64, newer.version = 23500, newer.netName = "Theirs";
  own.netName = "Theirs", other.magic = 1, old.size = offsetof(struct dyn_nccl_config, netName);
  init_rank of = (init_rank)dlsym(dlopen(NULL, RTLD_LAZY), "ncclCommInitRankConfig"), plain = (init_rank)dlsym(dlopen(NULL, RTLD_LAZY), "ncclCommInitRank");
  function split = find("ncclCommSplit"), shrink = find("ncclCommShrink");
  looked = fake, fake->inside = look_at_config;
  for (int apart = 0; apart < 2; apart++) {
    const char *socket = apart ? "Socket" : "";
    unsigned noted = apart ? DYN_NETWORK_SOCKET : DYN_NETWORK_ANY;
    if (apart) setenv("DYNAMICCL_GIN_NET", "dynamiccl-carrier", 1);
    NET_IS(3, of(6, 2, id, 0, (uintptr_t)&none), socket, noted);
    NET_IS(3, of(6, 2, id, 0, (uintptr_t)&own), "Theirs", DYN_NETWORK_OTHER);
    NET_IS(3, of(6, 2, id, 0, (uintptr_t)&other), "", DYN_NETWORK_OTHER); /* is no config, and NCCL says so */
    NET_IS(3, of(6, 2, id, 0, (uintptr_t)&old), "", DYN_NETWORK_OTHER);
    NET_IS(3, of(6, 2, id, 0, (uintptr_t)&ib), "ib", DYN_NETWORK_IB);
    NET_IS(3, of(6, 2, id, 0, (uintptr_t)&sockets), "socket", DYN_NETWORK_SOCKET);
    NET_IS(3, of(6, 2, id, 0, (uintptr_t)&newer), "Theirs", DYN_NETWORK_OTHER);
    if (apart) NET_IS(3, plain(6, 2, id, 0, 0), "Socket", DYN_NETWORK_SOCKET);
    NET_IS(4, split(6, 0, 0, 0, 0, 0, 0, 0, 0), NO_CONFIG, 0);
    NET_IS(4, split(6, 0, 0, 0, (uintptr_t)&none, 0, 0, 0, 0), socket, noted);
    NET_IS(4, split(6, 0, 0, 0, (uintptr_t)&own, 0, 0, 0, 0), "Theirs", DYN_NETWORK_OTHER);
    NET_IS(4, shrink(6, 0, 0, 0, 0, 0, 0, 0, 0), NO_CONFIG, 0);
    NET_IS(4, shrink(6, 0, 0, 0, (uintptr_t)&none, 0, 0, 0, 0), socket, noted);
    fake->inside = NULL;
    for (int again = 0; again < 2; again++) /* is forwarded, and said once where they are apart */
      CHECK(find("ncclCommInitAll")(6, 2, 0, 0, 0, 0, 0, 0, 0) == FAKE_RESULT && strcmp(fake->name, "ncclCommInitAll") == 0);
    fake->inside = look_at_config;
  }
  CHECK(none.netName == NULL && none.splitShare == 1, "the program's config was changed");
  unsetenv("DYNAMICCL_GIN_NET");
  NET_IS(3, of(6, 2, id, 0, 0), NO_CONFIG, DYN_NETWORK_ANY);
  fake->inside = NULL;
  atomic_store(&preload->networks, 0);
  CHECK(plain(6, 2, id, 0, 0) == FAKE_RESULT && atomic_load(&preload->networks) == DYN_NETWORK_ANY, "a call without a config");
  atomic_store(&preload->networks, 0);
  CHECK(find("ncclCommInitAll")(6, 2, 0, 0, 0, 0, 0, 0, 0) == FAKE_RESULT && atomic_load(&preload->networks) == DYN_NETWORK_ANY, "all at once");
}

/* Threads that capture and threads that do not, while another one opens and closes windows. */
#define CALLERS 3
#define ROUNDS 100000
static atomic_int running = CALLERS;
static void *caller(void *seedling) {
  uint64_t random = (uintptr_t)seedling + 88172645463325252u;
  struct fake_call *fake = last();
  for (int n = 0; n < ROUNDS; n++) {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    int captured = random >> 20 & 1, i = (int)((random >> 24) % 18);
    forwards(i, captured ? FAKE_CAPTURED : 0x5000, fake);
    CHECK(!captured || !(fake->mask & KERNEL), "%s in a graph has KernelCh", calls[i].name);
    CHECK(!captured || !streams_call(i) || (fake->mask & TOLD), "%s in a graph is not told of", calls[i].name);
  }
  atomic_fetch_sub(&running, 1);
  return NULL;
}
static void threads(void) {
  pthread_t callers[CALLERS];
  struct dyn_mask_words words = {mask, &preload->take, &preload->restore, &preload->turns, &preload->tell};
  unsigned there = 0;
  atomic_store(&preload->tell, TOLD);
  atomic_store(mask, 0);
  for (uintptr_t i = 0; i < CALLERS; i++) CHECK(pthread_create(&callers[i], NULL, caller, (void *)i) == 0);
  for (int n = 0; atomic_load(&running) > 0; n++) {
    dyn_mask_write(&words, n % 3 ? OTHER | KERNEL : OTHER, KERNEL);
    there += (atomic_load(mask) & KERNEL) != 0;
  }
  for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
  dyn_mask_write(&words, OTHER | KERNEL, KERNEL);
  CHECK(atomic_load(mask) == (OTHER | KERNEL | TOLD), "%x is left", atomic_load(mask));
  CHECK(there > 0, "no window was ever open");
}

/* A thread that ends leaves its memory to the next one. No two calls that are seen in one place have the same number: the plugin
 * would take the second for NCCL asking again. */
static struct { const struct dyn_preload_call *in; uint64_t number; } seen[100];
static unsigned numSeen;
static int note_number(void) {
  seen[numSeen].in = preload->call();
  seen[numSeen++].number = preload->call()->number;
  return FAKE_RESULT;
}
static void *call_once(void *nothing) {
  last()->inside = note_number;
  forwards(0, 0x5000, last());
  return nothing;
}
static void numbers(void) {
  unsigned again = 0;
  numSeen = 0;
  for (int i = 0; i < 100; i++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, call_once, NULL) == 0 && pthread_join(thread, NULL) == 0);
  }
  for (int i = 1; i < 100; i++) {
    again += seen[i].in == seen[i - 1].in;
    CHECK(seen[i].in != seen[i - 1].in || seen[i].number != seen[i - 1].number, "call %d has the number of the thread before", i);
  }
  CHECK(again > 0, "no thread had the memory of another one");
}

int main(int argc, char **argv) {
  char path[4096];
  CHECK(argc > 1, "local, global or none");
  preload = dlsym(RTLD_DEFAULT, DYN_PRELOAD_SYMBOL);
  CHECK(preload != NULL && preload->version == DYN_PRELOAD_VERSION, "not preloaded");
  if (strcmp(argv[1], "none") == 0) {
    for (int n = 0; n < 3; n++)
      for (size_t i = 0; i < NUM_CALLS; i++)
        CHECK(find(calls[i].name)(0, 0, 0, 0, 0, 0, 0, 0, 0) == 2, "%s", calls[i].name);
    return 0;
  }
  atomic_int alone = OTHER | KERNEL;
  atomic_store(&preload->mask, &alone);
  atomic_store(&preload->take, KERNEL);
  CHECK(find("ncclAllReduce")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 2, "before NCCL is loaded");
  snprintf(path, sizeof path, "%s/libnccl.so.2", argv[2]);
  void *nccl = dlopen(path, RTLD_NOW | (strcmp(argv[1], "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL));
  CHECK(nccl != NULL, "%s", dlerror());
  mask = dlsym(nccl, "ncclProfilerEventMask");
  last = (struct fake_call *(*)(void))dlsym(nccl, "fake_last_call");
  CHECK(mask != NULL && last != NULL);
  struct fake_call *fake = last();
  /* Without a driver nothing is known: as if it were captured. */
  atomic_store(&preload->mask, mask);
  atomic_store(mask, OTHER | KERNEL);
  forwards(0, 0x5000, fake);
  CHECK(fake->mask == (OTHER | DYN_GUARD_ONE), "%x", fake->mask);
  snprintf(path, sizeof path, "%s/libcuda.so.1", argv[2]);
  CHECK(dlopen(path, RTLD_NOW | RTLD_LOCAL) != NULL, "%s", dlerror());
  guards(fake);
  costs(fake);
  lone(fake);
  announces(fake);
  networks(fake);
  relaxes(fake);
  threads();
  numbers();
  return 0;
}
