/* SPDX-License-Identifier: Apache-2.0
 *
 *   LD_PRELOAD=libdynamiccl.so test_named FOLDER LIBCUDA     FOLDER has the fake libnccl.so.2
 * Which calls are on registered memory, and what NCCL is told by name to run: by itself, in groups, in captures, and where it refuses.
 */
#include "lsa_ring.h"

#include <limits.h>

#include "../../plugin/named.h"
#include "../named.h"
#include "../windows.h"

#define SYMMETRIC(kernel) (DYN_PATH_SYMMETRIC | (uint32_t)(kernel) << DYN_ACTION_ALGO_SHIFT)
#define RING_SIMPLE (DYN_PATH_COLLECTIVE | 1u << DYN_ACTION_ALGO_SHIFT | 2u << DYN_ACTION_PROTO_SHIFT)
#define INVALID_ARGUMENT 4
#define MAX 2

/* What the plugin is asked, and what NCCL is called with, in their order. */
static char story[256];
static int answer; /* of calls with a configuration */
static bool again; /* NCCL's next call has one inside */
static struct dyn_coll_config seen;

static void tell(const char *what) { strncat(story, what, sizeof story - strlen(story) - 1); }

static uint32_t chooser_asked(void *chooser, int collective, uint64_t bytes, uint32_t able) {
  CHECK(chooser == &planned && collective >= 0 && collective <= ALL_TO_ALL && bytes > 0);
  askedBytes = bytes;
  tell(able & DYN_ABLE_OVER ? "over " : able & DYN_ABLE_REFUSED ? "refused " : able & DYN_ABLE_LOOK ? "looked " : able & DYN_ABLE_REGISTERED ? "registered " : "asked ");
  struct dyn_timed *timed = preload->about(8, 0, collective).timed; /* as ncclCommCount and ncclCommUserRank have it */
  if (able & DYN_ABLE_REGISTERED) describe_as(timed, planned);
  return able & DYN_ABLE_REGISTERED ? planned : 0;
}

static int nccl(void) {
  bool named = strstr(fake->name, "Config") != NULL;
  tell(strcmp(fake->name, "ncclGroupEnd") == 0 ? "end " : strcmp(fake->name, "ncclGroupSimulateEnd") == 0 ? "simulated " : named ? "named " : "plain ");
  if (named) memcpy(&seen, (void *)fake->arguments[strcmp(fake->name, "ncclAllGatherConfig") == 0 ? 6 : 7], sizeof seen); /* AllGather has no operator */
  if (again) { /* NCCL calls itself through our names */
    again = false;
    uintptr_t a[FAKE_ARGUMENTS];
    memcpy(a, fake->arguments, sizeof a);
    CHECK(find("ncclAllReduceConfig")(a[0], a[1], a[2], a[3], a[4], a[5], a[6], (uintptr_t)&seen, 0) == 0);
  }
  return named ? answer : 0;
}

static void nothing(void *chooser) { CHECK(chooser == &planned); }
static int make_it(void) {
  *(uintptr_t *)fake->arguments[0] = COMM;
  CHECK(preload->device->expect(lsa, &planned, chooser_asked, nothing));
  return 0;
}

static void make_comm(void) {
  int (*init)(uintptr_t *, int, struct fake_id, int) = (int (*)(uintptr_t *, int, struct fake_id, int))(void *)find("ncclCommInitRank");
  struct fake_id id = {""};
  uintptr_t comm = 0;
  prepare();
  fake->inside = make_it;
  CHECK(init(&comm, numRanks, id, rank) == 0 && comm == COMM);
  fake->inside = succeed;
}

static void *registers(void *at, size_t bytes, int flags) {
  static uintptr_t handle;
  void *window = (void *)++handle; /* this NCCL leaves it as it is */
  CHECK(find("ncclCommWindowRegister")(COMM, (uintptr_t)at, bytes, (uintptr_t)&window, (uintptr_t)flags, 0, 0, 0, 0) == 0);
  return window;
}

static const size_t all = (MOST * MAX_RANKS + 1) * sizeof(float);
static const struct step usual = {.collective = ALL_REDUCE, .count = 100};

/* One call, and what came of it. */
static void is(const struct step *s, int slot, uint32_t action, const char *want) {
  struct step call = *s;
  call.stream = streams[0];
  planned = action;
  story[0] = '\0';
  memset(&seen, 0, sizeof seen);
  fake->inside = nccl;
  CHECK(issue(&call, slot, COMM) == (answer == INVALID_ARGUMENT ? 0 : answer));
  fake->inside = succeed;
  CHECK(strcmp(story, want) == 0, "\"%s\", want \"%s\"", story, want);
}

static void configured(const char *name, bool must) {
  CHECK(seen.size == 64 && seen.magic == 0xcafebeef && seen.version == 23100 && seen.ext == NULL);
  CHECK(seen.minCTAs == INT_MIN && seen.maxCTAs == INT_MIN && seen.nvlsCTAs == INT_MIN && seen.cgaClusterSize == INT_MIN && seen.CTAPolicy == INT_MIN);
  CHECK(seen.algSelection != NULL && strcmp(seen.algSelection, name) == 0 && seen.forceAlgSelection == must && seen.userProfilerTag == 0);
}

/* Registered is what lies in a window of symmetric memory at both ends, and what NCCL has symmetric kernels for. */
static void registered(void) {
  struct step max = usual, gather = {.collective = ALL_GATHER, .count = 10}, scatter = {.collective = REDUCE_SCATTER, .count = 10};
  max.op = MAX;
  make_comm();
  CHECK(preload->device->names() && preload->device->windows(lsa));
  is(&usual, 0, 0, "looked plain "); /* nothing is registered: the plan has nothing of ours */
  void *window = registers(in[0], all, DYN_WIN_COLL_SYMMETRIC);
  is(&usual, 0, DYN_CHOSEN_NCCL, "asked plain ");
  void *other = registers(out[0], all, 0);
  is(&usual, 0, DYN_CHOSEN_NCCL, "asked plain ");
  CHECK(find("ncclCommWindowDeregister")(COMM, (uintptr_t)other, 0, 0, 0, 0, 0, 0, 0) == 0);
  registers(out[0], all, DYN_WIN_COLL_SYMMETRIC);
  is(&usual, 1, DYN_CHOSEN_NCCL, "asked plain ");
  is(&usual, 0, 0, "registered plain "); /* where not all ranks know windows */
  is(&usual, 0, DYN_CHOSEN_NCCL, "registered plain over ");
  is(&max, 0, DYN_CHOSEN_NCCL, "asked plain ");
  is(&usual, 0, SYMMETRIC(DYN_SYMMETRIC_AG_LL), "registered named over ");
  configured("SYMK_AGxLL_R", true);
  CHECK(strcmp(fake->name, "ncclAllReduceConfig") == 0 && fake->arguments[0] == (uintptr_t)in[0] && fake->arguments[1] == (uintptr_t)out[0] && fake->arguments[2] == 100 &&
        (int)fake->arguments[3] == FLOAT32 && (int)fake->arguments[4] == SUM && fake->arguments[5] == COMM && fake->arguments[6] == (uintptr_t)streams[0]);
  is(&usual, 0, RING_SIMPLE, "registered named over ");
  configured("RING_SIMPLE", true);
  is(&gather, 0, SYMMETRIC(DYN_SYMMETRIC_ST), "registered named over ");
  configured("SYMK_ST", true);
  CHECK(strcmp(fake->name, "ncclAllGatherConfig") == 0 && askedBytes == 40 * (uint64_t)numRanks);
  is(&scatter, 0, SYMMETRIC(DYN_SYMMETRIC_LD), "registered named over ");
  configured("SYMK_LD", true);
  CHECK(strcmp(fake->name, "ncclReduceScatterConfig") == 0);
  CHECK(find("ncclCommWindowDeregister")(COMM, (uintptr_t)window, 0, 0, 0, 0, 0, 0, 0) == 0);
  is(&usual, 0, DYN_CHOSEN_NCCL, "asked plain ");
}

/* What is refused runs without the name; any other failure is the program's. A configuration of its own is left alone. */
static void refused(void) {
  struct dyn_coll_config own = {.size = sizeof own, .algSelection = "RING_LL"};
  make_comm();
  registers(in[0], all, DYN_WIN_COLL_SYMMETRIC);
  registers(out[0], all, DYN_WIN_COLL_SYMMETRIC | DYN_WIN_GIN_ONLY);
  answer = INVALID_ARGUMENT;
  is(&usual, 0, SYMMETRIC(DYN_SYMMETRIC_RS_TMA_LD_AG_TMA_ST), "registered named refused plain over ");
  answer = 1;
  is(&usual, 0, SYMMETRIC(DYN_SYMMETRIC_AG_LL), "registered named over ");
  answer = 0;
  story[0] = '\0';
  fake->inside = nccl;
  CHECK(find("ncclAllReduceConfig")((uintptr_t)in[0], (uintptr_t)out[0], 100, FLOAT32, SUM, COMM, 0, (uintptr_t)&own, 0) == 0);
  fake->inside = succeed;
  CHECK(strcmp(story, "named ") == 0 && fake->arguments[7] == (uintptr_t)&own, "%s", story);
}

/* In a group as outside of it, but that NCCL may do as it likes; the chooser hears of the end when NCCL has asked all. */
static void groups(void) {
  struct step call = usual;
  make_comm();
  registers(in[0], all, DYN_WIN_COLL_SYMMETRIC);
  registers(out[0], all, DYN_WIN_COLL_SYMMETRIC);
  call.stream = streams[0];
  for (int n = 0; n < 5; n++) {
    static const char *const want[] = {"registered named end over ", "registered plain end over ", "plain plain end ", "plain simulated ", "registered plain named end over "};
    group_start();
    planned = n == 1 || n == 4 ? DYN_CHOSEN_NCCL : SYMMETRIC(DYN_SYMMETRIC_AG_LL);
    story[0] = '\0';
    fake->inside = nccl;
    again = n == 4;
    for (int i = 0; i < (n == 2 ? 2 : 1); i++) CHECK(issue(&call, 0, COMM) == 0);
    CHECK(find(n == 3 ? "ncclGroupSimulateEnd" : "ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    fake->inside = succeed;
    CHECK(strcmp(story, want[n]) == 0, "\"%s\", want \"%s\"", story, want[n]);
    if (n == 0) configured("SYMK_AGxLL_R", false);
  }
  group_start(); /* a window of the same group */
  find("ncclCommWindowRegister")(COMM, (uintptr_t)in[1], all, (uintptr_t)&(void *){&call}, DYN_WIN_COLL_SYMMETRIC, 0, 0, 0, 0);
  find("ncclCommWindowRegister")(COMM, (uintptr_t)out[1], all, (uintptr_t)&(void *){&call}, DYN_WIN_COLL_SYMMETRIC, 0, 0, 0, 0);
  planned = DYN_CHOSEN_NCCL;
  story[0] = '\0';
  fake->inside = nccl;
  CHECK(issue(&call, 1, COMM) == 0 && find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  fake->inside = succeed;
  CHECK(strcmp(story, "registered plain end over ") == 0, "%s", story);
}

/* Of a timed call that NCCL may decline the sample says so. */
static void wished(void) {
  struct step call = usual;
  make_comm();
  registers(in[0], all, DYN_WIN_COLL_SYMMETRIC);
  registers(out[0], all, DYN_WIN_COLL_SYMMETRIC);
  open_ring();
  know(streams[0]);
  time_calls(true);
  call.stream = streams[0];
  for (int n = 0; n < 6; n++) {
    const bool inGroup = n % 2, byName = n < 4;
    planned = byName ? SYMMETRIC(DYN_SYMMETRIC_AG_LL) : DYN_CHOSEN_NCCL;
    fake->inside = nccl;
    if (inGroup) group_start();
    CHECK(issue(&call, 0, COMM) == 0);
    if (inGroup) group_end();
    fake->inside = succeed;
    unsigned flags = next_sample()->flags & ~DYN_SAMPLE_UNTIMED;
    CHECK(flags == (DYN_SAMPLE_EVENT_TIMED | (inGroup && byName ? DYN_SAMPLE_WISHED : 0u)), "call %d: flags %x", n, flags);
  }
  time_calls(false);
}

/* An AllToAll counts as on registered memory once the communicator has had a window, wherever its own buffers lie, and not before: ranks
 * that have another call in a group, or none, look at the moment in which it is made. */
static void all_to_all(void) {
  struct step call = {.collective = ALL_TO_ALL, .count = 10};
  make_comm();
  is(&call, 0, 0, "asked plain ");
  registers(in[0], all, 0);
  is(&call, 0, DYN_CHOSEN_NCCL, "registered plain over ");
  is(&call, 1, 0, "registered plain "); /* where not all ranks know windows */
  void *window = registers(out[0], all, DYN_WIN_COLL_SYMMETRIC);
  CHECK(find("ncclCommWindowDeregister")(COMM, (uintptr_t)window, 0, 0, 0, 0, 0, 0, 0) == 0);
  is(&call, 1, DYN_CHOSEN_NCCL, "registered plain over ");
}
static void all_to_all_in_groups(void) {
  struct step call = {.collective = ALL_TO_ALL, .count = 10, .stream = streams[0]};
  make_comm();
  for (int first = 0; first < 2; first++) { /* the call, then the window */
    group_start();
    planned = DYN_CHOSEN_NCCL;
    story[0] = '\0';
    fake->inside = nccl;
    if (first > 0) registers(in[1], all, 0);
    CHECK(issue(&call, 0, COMM) == 0);
    if (first == 0) find("ncclCommWindowRegister")(COMM, (uintptr_t)in[0], all, (uintptr_t)&(void *){&call}, DYN_WIN_COLL_SYMMETRIC, 0, 0, 0, 0);
    fake->inside = nccl;
    story[0] = '\0';
    CHECK(find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    fake->inside = succeed;
    CHECK(strcmp(story, first == 0 ? "asked plain end " : "registered plain end over ") == 0, "%s", story);
  }
}

/* Nobody can say what the ranks of other hosts run, and NCCL asks nobody about an AllToAll: it fails before NCCL has it, in a group or not. */
static void lost(void) {
  enum { REMOTE_ERROR = 6 };
  struct step call = {.collective = ALL_TO_ALL, .count = 10, .stream = streams[0]};
  make_comm();
  registers(in[0], all, 0);
  planned = DYN_CHOSEN_LOST;
  fake->inside = nccl;
  story[0] = '\0';
  CHECK(issue(&call, 0, COMM) == REMOTE_ERROR && strcmp(story, "registered ") == 0, "%s", story);
  group_start();
  story[0] = '\0';
  CHECK(issue(&call, 0, COMM) == 0 && find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == REMOTE_ERROR && strcmp(story, "registered end ") == 0, "%s", story);
  fake->inside = succeed;
}

/* A call, or a group's end, that another thread's abort has NCCL return from: the communicator is gone, and nobody is asked of it. */
static bool grouping;
static void *abort_it(void *nothing) {
  find("ncclCommAbort")(COMM, 0, 0, 0, 0, 0, 0, 0, 0);
  preload->device->close(lsa);
  return nothing;
}
static int aborted_meanwhile(void) {
  pthread_t thread;
  tell(strcmp(fake->name, "ncclGroupEnd") == 0 ? "end " : "call ");
  if (strcmp(fake->name, "ncclAllReduce") == 0 && grouping) return 0;
  CHECK(pthread_create(&thread, NULL, abort_it, NULL) == 0 && pthread_join(thread, NULL) == 0);
  return FAKE_RESULT;
}
static void aborted(int way) {
  static const char *const want[] = {"registered call ", "registered call end ", "call registered end "};
  struct step call = usual;
  make_comm();
  registers(in[0], all, DYN_WIN_COLL_SYMMETRIC);
  registers(out[0], all, DYN_WIN_COLL_SYMMETRIC);
  call.stream = streams[0];
  planned = way == 2 ? LSA(0, 1) : DYN_CHOSEN_NCCL;
  story[0] = '\0';
  if (way > 0) group_start();
  grouping = way > 0;
  fake->inside = aborted_meanwhile;
  if (way == 2) CHECK(issue(&call, 1, OTHER_COMM) == 0);
  CHECK(issue(&call, 0, COMM) == (way > 0 ? 0 : FAKE_RESULT));
  if (way > 0) CHECK(find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == FAKE_RESULT);
  fake->inside = succeed;
  CHECK(strcmp(story, want[way]) == 0, "\"%s\", want \"%s\"", story, want[way]);
}
static void aborted_call(void) { aborted(0); }
static void aborted_given(void) { aborted(1); }
static void aborted_behind(void) { aborted(2); }

/* In a capture a refusal would come too late. */
static void captures(void) {
  CUgraph graph;
  make_comm();
  registers(in[0], all, DYN_WIN_COLL_SYMMETRIC);
  registers(out[0], all, DYN_WIN_COLL_SYMMETRIC);
  CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
  is(&usual, 0, SYMMETRIC(DYN_SYMMETRIC_AG_LL), "registered named over ");
  configured("SYMK_AGxLL_R", false);
  CHECK(cuda.cuStreamEndCapture(streams[0], &graph) == 0);
  CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  is(&usual, 0, SYMMETRIC(DYN_SYMMETRIC_AG_LL), "plain ");
}

/* An NCCL whose configuration is not known is given no names; what is registered counts so all the same, where it has symmetric kernels. */
static void old(void) {
  struct step bcast = {.collective = BROADCAST, .count = 10};
  make_comm();
  CHECK(!preload->device->names() && preload->device->windows(lsa));
  registers(in[0], all, DYN_WIN_COLL_SYMMETRIC);
  registers(out[0], all, DYN_WIN_COLL_SYMMETRIC);
  is(&usual, 0, DYN_CHOSEN_NCCL, "registered plain over ");
  is(&bcast, 0, 0, "asked plain ");
}

int main(int argc, char **argv) {
  char kernels[4096];
  begin_program(argc, argv, kernels);
  play("registered", 3, registered);
  play("refused", 2, refused);
  play("groups", 2, groups);
  play("all-to-all", 2, all_to_all);
  play("wished", 2, wished);
  play("all-to-all in groups", 2, all_to_all_in_groups);
  play("lost", 2, lost);
  play("aborted call", 2, aborted_call);
  play("aborted, given", 2, aborted_given);
  play("aborted, behind", 2, aborted_behind);
  play("captures", 2, captures);
  setenv("FAKE_NCCL_VERSION", "23100", 1);
  play("first with names", 2, groups);
  setenv("FAKE_NCCL_VERSION", "23099", 1);
  play("old", 2, old);
  unlink(kernels);
  return 0;
}
