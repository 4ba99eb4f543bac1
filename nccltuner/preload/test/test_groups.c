/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups whose calls CUDA events time, and those that are left alone, in front of a fake NCCL and a fake driver; this program
 * plays the plugin:
 *   test_groups FOLDER
 */
#include "probe_rig.h"

enum { MOST = 40, KIND_OF_ALL_REDUCE = 5 };
static function start_group, end_group, all;

/* One call of a group: communicators are numbers, each is rank comm % 8 of 8. */
static struct member { uintptr_t comm, stream, count; int asks; uint64_t takes; } members[MOST];
static int numMembers, resultOfEnd;
static bool nested; /* another end follows */
static uint64_t keys[MOST]; /* by which the plugin was told of them; 0: it was not */
static const uintptr_t FLOAT = 7;

static struct dyn_about about(uintptr_t comm) { return preload->about(8, (int)(comm % 8), 4 /* AllReduce */); }

/* NCCL, when the group ends: the tuner is asked about one communicator after the other, last first, then all is launched. */
static int runs(void) {
  static uint64_t number; /* of the end before */
  const bool ends = !nested && (strcmp(last()->name, "ncclGroupEnd") == 0 || strcmp(last()->name, "ncclGroupSimulateEnd") == 0);
  CHECK(preload->call()->ends == ends && (!ends || preload->call()->number != number), "%s", last()->name);
  if (ends) number = preload->call()->number;
  CHECK(preload->call()->simulates == (strcmp(last()->name, "ncclGroupSimulateEnd") == 0 && !nested), "%s", last()->name);
  if (strcmp(last()->name, "ncclGroupEnd") != 0) {
    CHECK(about(members[0].comm).timed == NULL && about(members[0].comm).key == 0, "nothing is asked before the group ends");
    return SUCCESS;
  }
  for (int i = numMembers; i-- > 0;) {
    const struct dyn_about it = about(members[i].comm);
    keys[i] = it.key;
    CHECK(preload->about(8, (int)(members[i].comm % 8), 2).key == 0, "another function");
    for (int a = 0; a < members[i].asks && it.timed != NULL; a++) {
      it.timed->asked++;
      it.timed->lease = preload->lease;
      it.timed->sample = (struct dyn_sample){.seq = members[i].comm, .flags = DYN_SAMPLE_EVENT_TIMED};
    }
    atomic_fetch_add(&gpu->ends[members[i].stream % FAKE_STREAMS], members[i].takes);
  }
  return resultOfEnd;
}

static void add(uintptr_t comm, uintptr_t stream, uintptr_t count) {
  members[numMembers++] = (struct member){.comm = comm, .stream = stream, .count = count, .asks = 1, .takes = 100 * comm};
}

static int finish(function end) {
  int n = numMembers;
  last()->inside = runs;
  frozenNs = now_ns();
  for (int i = 0; i < n; i++) all(1, 2, members[i].count, FLOAT, 0, members[i].comm, FAKE_STREAM(members[i].stream), 0, 0);
  int result = end(0, 0, 0, 0, 0, 0, 0, 0, 0);
  CHECK(about(members[0].comm).timed == NULL && about(members[0].comm).key == 0, "the group is over");
  frozenNs = 0;
  numMembers = 0;
  return result;
}

static void begin(void) {
  start_group = find("ncclGroupStart"), end_group = find("ncclGroupEnd"), all = find("ncclAllReduce");
  last()->inside = runs;
  everything_is_over();
  CHECK(start_group(0, 0, 0, 0, 0, 0, 0, 0, 0) == SUCCESS);
}
static void restart(void) { CHECK(start_group(0, 0, 0, 0, 0, 0, 0, 0, 0) == SUCCESS); }

/* One thread, several GPUs: each call has its own times and none a moment of its issue. */
static void of_one_thread(void) {
  begin();
  for (int round = 0; round < 50; round++) {
    if (round > 0) restart();
    if (round % 2) restart(); /* nested */
    for (uintptr_t r = 0; r < 4; r++) add(8 + r, r, 1000);
    nested = round % 2;
    if (nested) CHECK(end_group(0, 0, 0, 0, 0, 0, 0, 0, 0) == SUCCESS);
    nested = false;
    unsigned records = atomic_load(&gpu->records);
    CHECK(finish(end_group) == SUCCESS);
    CHECK(atomic_load(&gpu->records) == records + 8);
    bool seen[4] = {false};
    for (int i = 0; i < 4; i++) {
      struct dyn_sample s = await();
      CHECK(s.seq >= 8 && s.seq < 12 && !seen[s.seq - 8] && s.signalNs == 100 * s.seq && s.recvNs == 0, "call %lu: %u ns", s.seq, s.signalNs);
      seen[s.seq - 8] = true;
    }
  }
  none();
}

/* Who rests is not timed beside those who do not. */
static void one_rests(void) {
  begin();
  dyn_rest_add(&preload->resting, (void *)10);
  for (uintptr_t r = 0; r < 4; r++) add(8 + r, r, 1000);
  unsigned records = atomic_load(&gpu->records);
  CHECK(finish(end_group) == SUCCESS && atomic_load(&gpu->records) == records + 6);
  for (int i = 0; i < 3; i++) CHECK(await().seq != 10);
  none();
}

/* A call of which it is no matter that it stands in a group. */
static void of_one_gpu(void) {
  begin();
  add(9, 3, 1000);
  uint64_t before = now_ns();
  CHECK(finish(end_group) == SUCCESS);
  struct dyn_sample s = await();
  CHECK(s.seq == 9 && s.signalNs == 900 && s.recvNs >= before && s.recvNs <= now_ns());
}

/* Of a group in which nothing is timed the plugin may want the next one's. */
static void one_wanted(void) {
  const uint64_t key = dyn_watch_key((void *)10, KIND_OF_ALL_REDUCE, 1000, 4);
  begin();
  atomic_store(&preload->timing, 0);
  for (uintptr_t r = 0; r < 4; r++) add(8 + r, r, 1000);
  unsigned records = atomic_load(&gpu->records);
  CHECK(finish(end_group) == SUCCESS && atomic_load(&gpu->records) == records);
  CHECK(keys[2] == key);
  CHECK(dyn_watch_add(&preload->watched, key));
  CHECK(find("ncclCommDestroy")(0, 0, 0, 0, 0, 0, 0, 0, 0) == SUCCESS && dyn_watch_has(&preload->watched, key), "no communicator goes");
  restart();
  for (uintptr_t r = 0; r < 4; r++) add(8 + r, r, 1000);
  CHECK(finish(end_group) == SUCCESS && atomic_load(&gpu->records) == records + 2);
  CHECK(await().seq == 10);
  none();
}

static int send_too(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f, uintptr_t g, uintptr_t h, uintptr_t i) {
  CHECK(find("ncclSend")(1, 2, 3, 4, 5, FAKE_STREAM(7), 0, 0, 0) == SUCCESS);
  return end_group(a, b, c, d, e, f, g, h, i);
}
static int destroy_too(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f, uintptr_t g, uintptr_t h, uintptr_t i) {
  find("ncclCommDestroy")(9, 0, 0, 0, 0, 0, 0, 0, 0);
  return end_group(a, b, c, d, e, f, g, h, i);
}
static int reduce_too(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f, uintptr_t g, uintptr_t h, uintptr_t i) {
  find("ncclReduce")(1, 2, 1000, FLOAT, 0, 0, 10, FAKE_STREAM(7), 0);
  return end_group(a, b, c, d, e, f, g, h, i);
}
static int captured_too(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f, uintptr_t g, uintptr_t h, uintptr_t i) {
  all(1, 2, 1000, FLOAT, 0, 10, FAKE_CAPTURED, 0, 0);
  return end_group(a, b, c, d, e, f, g, h, i);
}

/* It is a program's mistake, and no event must go into the graph. */
static int capture_since(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f, uintptr_t g, uintptr_t h, uintptr_t i) {
  atomic_store(&gpu->capturing, FAKE_STREAM(1));
  int result = end_group(a, b, c, d, e, f, g, h, i);
  atomic_store(&gpu->capturing, 0);
  return result;
}

static void left_alone(void) {
  static const struct { const char *what; uintptr_t comm, stream, count; function end; } cases[] = {
      {"a communicator twice", 8, 5, 1000, NULL},    {"another size", 10, 2, 2000, NULL},
      {"the same stream", 10, 1, 1000, NULL},        {"the same rank of another communicator", 16, 2, 1000, NULL},
      {"an empty call", 10, 2, 0, NULL},             {"another function", 0, 0, 0, reduce_too},
      {"a send", 0, 0, 0, send_too},                 {"a communicator goes", 0, 0, 0, destroy_too},
      {"a captured call", 0, 0, 0, captured_too},    {"a capture since", 0, 0, 0, capture_since},
  };
  begin();
  add(12, 4, 1000); /* one that is not */
  CHECK(finish(end_group) == SUCCESS && await().seq == 12);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    restart();
    add(8, 0, 1000);
    add(9, 1, 1000);
    if (cases[c].comm != 0) add(cases[c].comm, cases[c].stream, cases[c].count);
    unsigned records = atomic_load(&gpu->records);
    CHECK(finish(cases[c].end != NULL ? cases[c].end : end_group) == SUCCESS, "%s", cases[c].what);
    CHECK(keys[0] == 0 && keys[1] == 0, "%s", cases[c].what);
    CHECK(atomic_load(&gpu->records) == records, "%s: %u events", cases[c].what, atomic_load(&gpu->records) - records);
  }
  restart(); /* where nothing would be timed, either: the plugin gets no key */
  atomic_store(&preload->timing, 0);
  add(8, 0, 1000);
  CHECK(finish(captured_too) == SUCCESS && keys[0] == 0);
  atomic_store(&preload->timing, 1);
  restart(); /* more than there is room for */
  for (uintptr_t r = 0; r < MOST; r++) add(8 + r, r, 1000);
  unsigned records = atomic_load(&gpu->records);
  CHECK(finish(end_group) == SUCCESS && atomic_load(&gpu->records) == records);
  restart();
  add(8, 0, 1000);
  CHECK(finish(find("ncclGroupSimulateEnd")) == SUCCESS && atomic_load(&gpu->records) == records, "nothing runs");
  CHECK(!preload->call()->simulates && !preload->call()->ends, "it is over");
  restart(); /* a send, and then what would be timed */
  find("ncclSend")(1, 2, 3, 4, 5, FAKE_STREAM(7), 0, 0, 0);
  add(8, 0, 1000);
  CHECK(finish(end_group) == SUCCESS && atomic_load(&gpu->records) == records && keys[0] == 0);
  restart(); /* nothing but a send */
  CHECK(send_too(0, 0, 0, 0, 0, 0, 0, 0, 0) == SUCCESS && atomic_load(&gpu->records) == records);
  none();
  restart(); /* and the next one is timed */
  add(11, 3, 1000);
  CHECK(finish(end_group) == SUCCESS);
  CHECK(await().seq == 11);
  restart(), restart(); /* what ends the group says whether it runs */
  nested = true;
  add(8, 0, 1000);
  CHECK(finish(find("ncclGroupSimulateEnd")) == SUCCESS);
  nested = false;
  CHECK(end_group(0, 0, 0, 0, 0, 0, 0, 0, 0) == SUCCESS);
}

/* Of which nothing comes, and the others' samples do. */
static void dropped(void) {
  begin();
  for (uintptr_t r = 0; r < 3; r++) add(8 + r, r, 1000);
  members[0].asks = 0;
  members[2].asks = 2;
  CHECK(finish(end_group) == SUCCESS);
  CHECK(await().seq == 9);
  none();
  resultOfEnd = IN_PROGRESS;
  restart();
  for (uintptr_t r = 0; r < 3; r++) add(8 + r, r, 1000);
  CHECK(finish(end_group) == IN_PROGRESS);
  none();
}

int main(int argc, char **argv) {
  CHECK(argc > 1, "the folder of the fakes");
  open_fakes(argv[1]);
  run("group of one thread", of_one_thread);
  run("group of one GPU", of_one_gpu);
  run("group, one wanted", one_wanted);
  run("group, one rests", one_rests);
  run("groups left alone", left_alone);
  run("group, dropped", dropped);
  return 0;
}
