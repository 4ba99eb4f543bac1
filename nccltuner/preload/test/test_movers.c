/* SPDX-License-Identifier: Apache-2.0
 *
 *   test_movers [CASE]...     without, all; of the cases with threads that are two, whatever other processes do
 * Threads that move bytes (movers.c) beside those that ask for it, as NCCL's do: what streams carry comes whole and in order, whoever moves
 * it and however many pieces it comes in, and none is touched when who asked has ended.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../forward.h"
#include "../mover_count.h"
#include "../movers.h"
#include "patience.h"

struct dyn_preload dynamiccl_preload;

#define CHECK(condition) ((condition) ? (void)0 : (printf("test_movers: line %d: %s (errno %d)\n", __LINE__, #condition, errno), exit(1)))
#define STREAMS 12 /* descriptors 0 to 11: nothing is behind them but what is here */
#define MOST 6000  /* bytes of a message; how many there are matters to nobody but sends.c */

static uint64_t next_random(uint64_t *seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return *seed >> 33;
}

static void nap(long ns) { nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); }

/* Each stream carries the bytes 0, 1, 2 ... and then ends as the test likes. */
static struct stream {
  uint64_t at, end;
  int endsWith; /* an errno; 0: the other end has closed it */
  uint64_t seed;
  _Atomic bool inside;
  _Atomic uint64_t byOthers;
} streams[STREAMS];
static _Thread_local bool asks;
static _Atomic bool hold, held, asked;

static dyn_word receive(dyn_word fd, dyn_word data, dyn_word bytes, dyn_word flags, dyn_word e, dyn_word f) {
  struct stream *s = &streams[fd];
  (void)flags, (void)e, (void)f;
  CHECK(!atomic_exchange(&s->inside, true)); /* one at a time */
  if (!asks) {
    atomic_fetch_add(&s->byOthers, 1);
    atomic_store(&held, true);
    while (atomic_load(&hold)) sched_yield();
  }
  uint64_t chance = next_random(&s->seed) % 8, n = 1 + next_random(&s->seed) % (chance < 2 ? (uint64_t)bytes : 1 + (uint64_t)bytes / 4);
  dyn_word got = (dyn_word)(n < s->end - s->at ? n : s->end - s->at);
  int error = 0;
  if (s->at == s->end) {
    error = s->endsWith;
    got = error == 0 ? 0 : -1;
  } else if (chance == 7) {
    error = next_random(&s->seed) % 2 ? EAGAIN : EINTR;
    got = -1;
  }
  for (dyn_word i = 0; i < got; i++) ((uint8_t *)data)[i] = (uint8_t)(s->at + (uint64_t)i);
  if (got > 0) s->at += (uint64_t)got;
  atomic_store(&s->inside, false);
  errno = error;
  return got;
}

/* One of NCCL's threads: messages of its streams by turns, for so many bytes of each; then what the stream ends with. */
struct progress {
  int first, count;
  uint64_t bytes, seed;
};
static void *progress(void *given) {
  struct progress *p = given;
  static _Thread_local uint8_t buffers[STREAMS][MOST];
  uint64_t from[STREAMS] = {0}, left[STREAMS] = {0}, size[STREAMS] = {0};
  bool over[STREAMS] = {false};
  asks = true;
  for (int live = p->count; live > 0;) {
    for (int i = 0; i < p->count; i++) {
      if (over[i]) continue;
      if (left[i] == 0) { /* the message before is whole */
        for (uint64_t b = 0; b < size[i]; b++) CHECK(buffers[i][b] == (uint8_t)(from[i] + b));
        from[i] += size[i];
        left[i] = size[i] = 1 + next_random(&p->seed) % MOST;
        memset(buffers[i], 0xee, MOST);
      }
      dyn_word got = dyn_move(receive, p->first + i, buffers[i] + (size[i] - left[i]), left[i], 0);
      CHECK(got <= (dyn_word)left[i]);
      if (got > 0) left[i] -= (uint64_t)got;
      else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        struct stream *s = &streams[p->first + i];
        CHECK(got == (s->endsWith ? -1 : 0) && (got == 0 || errno == s->endsWith) && from[i] + size[i] - left[i] == s->end);
        for (uint64_t b = 0; b < size[i] - left[i]; b++) CHECK(buffers[i][b] == (uint8_t)(from[i] + b));
        over[i] = true;
        live--;
      }
    }
  }
  return NULL;
}

static void open_streams(uint64_t bytes, int endsWith, uint64_t seed) {
  for (int i = 0; i < STREAMS; i++) streams[i] = (struct stream){.end = bytes + 997 * (uint64_t)i, .endsWith = endsWith, .seed = seed * 100 + (uint64_t)i};
}

static uint64_t by_others(void) {
  uint64_t sum = 0;
  for (int i = 0; i < STREAMS; i++) sum += atomic_load(&streams[i].byOthers);
  return sum;
}

/* Two of NCCL's threads with some streams each, to the end. */
static void whole(uint64_t bytes, int endsWith, uint64_t seed) {
  pthread_t threads[2];
  struct progress p[2];
  dyn_traffic_tell(&dynamiccl_preload.traffic, NULL);
  open_streams(bytes, endsWith, seed);
  for (int i = 0; i < 2; i++) {
    p[i] = (struct progress){.first = i * STREAMS / 2, .count = STREAMS / 2, .bytes = bytes, .seed = seed + (uint64_t)i};
    CHECK(pthread_create(&threads[i], NULL, progress, &p[i]) == 0);
  }
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  uint64_t sum = 0; /* each byte is told of once, whoever has moved it */
  for (int i = 0; i < STREAMS; i++) sum += streams[i].at;
  struct dyn_ring ring = {.longBytes = 5};
  dyn_traffic_tell(&dynamiccl_preload.traffic, &ring);
  CHECK(ring.longBytes == 5 + sum && ring.movedBytes <= sum && (by_others() < 100 || ring.movedBytes > 0));
  dyn_traffic_tell(&dynamiccl_preload.traffic, &ring);
  CHECK(ring.longBytes == 5 + sum);
}

/* Where threads have no CPU for a while, who asks moves most. */
static void much(int endsWith, uint64_t seed) {
  uint64_t moved = 0;
  for (uint64_t n = 0; n < 10 && moved <= 100; n++) whole(6000000, endsWith, seed + n), moved = by_others();
  CHECK(moved > 100);
}

/* NCCL's thread ends in the middle of its messages, with one that a thread of ours is within. */
static void *asks_and_ends(void *buffers) {
  asks = true;
  while (!atomic_load(&held)) dyn_move(receive, 0, buffers, MOST, 0);
  for (int fd = 1; fd < STREAMS; fd++) dyn_move(receive, fd, (uint8_t *)buffers + fd * MOST, MOST, 0);
  atomic_store(&asked, true);
  return NULL;
}
static uint64_t cpu_ns_of(clockid_t clock) {
  struct timespec used;
  CHECK(clock_gettime(clock, &used) == 0);
  return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}
/* Who joins it frees the buffers, and descriptors are others' then. */
static void ends(void) {
  static uint8_t buffers[STREAMS * MOST];
  int atOnce = 0;
  for (int round = 0; round < 20; round++) {
    pthread_t thread;
    open_streams(1 << 20, 0, 20 + (uint64_t)round);
    atomic_store(&held, false);
    atomic_store(&asked, false);
    atomic_store(&hold, true);
    CHECK(pthread_create(&thread, NULL, asks_and_ends, buffers) == 0);
    while (!atomic_load(&asked)) sched_yield();
    clockid_t clock;
    CHECK(pthread_getcpuclockid(thread, &clock) == 0);
    uint64_t used = cpu_ns_of(clock);
    do nap(5000000);
    while (cpu_ns_of(clock) - used < 500000); /* it is at its end, and waits there */
    CHECK(pthread_tryjoin_np(thread, NULL) == EBUSY);
    uint64_t calls = atomic_load(&streams[0].byOthers);
    atomic_store(&hold, false);
    CHECK(pthread_join(thread, NULL) == 0);
    atOnce += atomic_load(&streams[0].byOthers) == calls; /* not behind the whole message */
    memset(buffers, 0xee, sizeof buffers);
    uint64_t before = by_others();
    nap(5000000);
    CHECK(by_others() == before);
    for (size_t i = 0; i < sizeof buffers; i++) CHECK(buffers[i] == 0xee);
    whole(20000, 0, 40 + (uint64_t)round); /* to others each byte is new */
  }
  CHECK(atOnce == 20); /* where a message is moved on some rounds have the like of it, nearly all on one CPU that is busy */
  much(0, 60); /* threads move them still */
}
/* It does not wait for what another has asked for. */
static void *ends_beside(void *go) {
  static uint8_t buffer[MOST];
  asks = true;
  while (dyn_move(receive, 1, buffer, MOST, 0) <= 0) continue;
  while (!atomic_load((_Atomic bool *)go)) sched_yield();
  return NULL;
}
static void ends_beside_others(void) {
  static uint8_t buffer[MOST];
  _Atomic bool go = false;
  pthread_t thread;
  struct timespec until;
  open_streams(1 << 20, 0, 70);
  asks = true;
  CHECK(pthread_create(&thread, NULL, ends_beside, &go) == 0);
  nap(20000000);
  atomic_store(&held, false);
  atomic_store(&hold, true);
  while (!atomic_load(&held)) dyn_move(receive, 0, buffer, MOST, 0);
  atomic_store(&go, true);
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += in_vain_s(3);
  CHECK(pthread_timedjoin_np(thread, NULL, &until) == 0);
  atomic_store(&hold, false);
}

static void in_child(void (*does)(void)) {
  int status;
  fflush(stdout);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    does();
    exit(0);
  }
  pid_t got = waitpid(child, &status, 0);
  if (got != child || status != 0) printf("test_movers: %d, status %x\n", (int)got, (unsigned)status), exit(1);
}

static void moves(void) { much(EAGAIN + 1000, 1); } /* ends with what no stream says: an error that NCCL would give up at */
static void closes(void) { whole(60000, 0, 2); }
static void breaks(void) {
  for (uint64_t seed = 80; seed < 100; seed++) whole(60000, ECONNRESET, seed); /* in some a thread is the first to see it */
}
/* A stream's end that a thread has met: who asks may be first where threads have no CPU, and lets them be between two calls. */
static void meet_the_end(int fd, uint8_t *buffer) {
  uint64_t began = dyn_movers_clock_ns();
  open_streams(0, 0, 49);
  streams[fd].end = 0;
  while (atomic_load(&streams[fd].byOthers) == 0) {
    dyn_move(receive, fd, buffer, MOST, 0);
    nap(1000000);
    CHECK(dyn_movers_clock_ns() - began < in_vain_s(5) * UINT64_C(1000000000));
  }
  while (dyn_move(receive, fd, buffer, MOST, 0) != 0) CHECK(errno == EAGAIN);
}
/* A message of which some has come: NCCL has that, and where it does not ask threads sleep until it does. */
static void quiet(void) {
  static uint8_t buffers[STREAMS][MOST];
  asks = true;
  meet_the_end(0, buffers[0]); /* which is nothing to the stream behind it */
  for (int round = 0; round < 5; round++) {
    open_streams(1000, EAGAIN, 50 + (uint64_t)round);
    uint64_t began = dyn_movers_clock_ns();
    for (dyn_word had = 0, got; had < 1000; had += got > 0 ? got : 0) {
      got = dyn_move(receive, 0, buffers[0] + had, (size_t)(MOST - had), 0);
      CHECK(got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)));
      CHECK(dyn_movers_clock_ns() - began < in_vain_s(5) * UINT64_C(1000000000));
    }
    for (int i = 0; i < 5000; i++) CHECK(dyn_move(receive, 0, buffers[0], MOST, 0) == -1 && (errno == EAGAIN || errno == EINTR));
    nap(20000000);
    uint64_t before = cpu_ns_of(CLOCK_PROCESS_CPUTIME_ID);
    nap(50000000);
    CHECK(cpu_ns_of(CLOCK_PROCESS_CPUTIME_ID) - before < 10000000);
    dyn_move(receive, 1 + round, buffers[1], MOST, 0);
    for (unsigned n = 0; n < 200 * in_vain_s(1) && atomic_load(&streams[1 + round].byOthers) == 0; n++) nap(1000000);
    CHECK(atomic_load(&streams[1 + round].byOthers) > 0);
  }
}
/* Threads that are late, as without a CPU: who asks does it itself, but what a thread is within. */
static int moved(void) {
  int count = 0;
  for (int i = 0; i < STREAMS; i++) count += streams[i].at > 0;
  return count;
}
static void late(void) {
  static uint8_t buffers[STREAMS][MOST];
  open_streams(1 << 20, 0, 7);
  asks = true;
  atomic_store(&hold, true);
  uint64_t began = dyn_movers_clock_ns();
  for (int fd = 0; moved() < STREAMS - 2; fd = (fd + 1) % STREAMS) {
    dyn_move(receive, fd, buffers[fd], MOST, 0);
    CHECK(dyn_movers_clock_ns() - began < in_vain_s(3) * UINT64_C(1000000000));
  }
  CHECK(by_others() <= 2);
  atomic_store(&hold, false);
}
static dyn_word beyond(dyn_word fd, dyn_word data, dyn_word bytes, dyn_word flags, dyn_word e, dyn_word f) {
  (void)fd, (void)data, (void)flags, (void)e, (void)f;
  return bytes - 1;
}
/* Descriptors that there is no room for. */
static void high(void) {
  uint8_t byte;
  for (int fd = 4096; fd < 70000; fd += 777) CHECK(dyn_move(beyond, fd, &byte, 70000, 0) == 69999);
}

/* Threads are not there in a child, one that was within a call among them. */
static void asks_by_itself(void) {
  static uint8_t buffer[MOST];
  open_streams(100000, 0, 6);
  atomic_store(&hold, false);
  asks = true;
  for (int i = 0; i < 100; i++) dyn_move(receive, 0, buffer, MOST, 0);
  CHECK(streams[0].at > 0 && by_others() == 0);
  breaks();
}
static void forked(void) {
  static uint8_t buffer[MOST];
  open_streams(100000, 0, 4);
  asks = true;
  atomic_store(&held, false);
  atomic_store(&hold, true);
  while (!atomic_load(&held)) dyn_move(receive, 0, buffer, MOST, 0);
  in_child(asks_by_itself);
  atomic_store(&hold, false);
}

static _Atomic bool crowd = true;
static void *busy(void *nothing) {
  struct dyn_mover_wait wait;
  dyn_mover_begins(&wait);
  while (atomic_load(&crowd)) dyn_mover_worked(&wait, dyn_movers_clock_ns());
  return nothing;
}
/* One CPU for all: less and less threads are used, down to none; and more again when there is room. */
static void crowded(void) {
  enum { COUNT = 4 };
  cpu_set_t one;
  pthread_t threads[COUNT];
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
  dyn_movers_are(2);
  CHECK(dyn_movers_now(dyn_movers_clock_ns()) == 2);
  for (int i = 0; i < COUNT; i++) CHECK(pthread_create(&threads[i], NULL, busy, NULL) == 0);
  uint64_t began = dyn_movers_clock_ns();
  while (dyn_movers_now(dyn_movers_clock_ns()) > 0) {
    nap(1000000);
    CHECK(dyn_movers_clock_ns() - began < 20 * UINT64_C(1000000000));
  }
  atomic_store(&crowd, false);
  for (int i = 0; i < COUNT; i++) pthread_join(threads[i], NULL);
  began = dyn_movers_clock_ns();
  while (dyn_movers_now(dyn_movers_clock_ns()) == 0) {
    nap(1000000);
    CHECK(dyn_movers_clock_ns() - began < 70 * UINT64_C(1000000000));
  }
}

#include "alone.h"
#include "mover_counts.h"

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*does)(void);
  } cases[] = {{"moves", moves}, {"closes", closes}, {"breaks", breaks}, {"ends", ends}, {"beside", ends_beside_others}, {"quiet", quiet}, {"late", late}, {"high", high}, {"forked", forked}, {"alone", alone}, {"at_a_time", at_a_time}};
  how_many();
  in_child(crowded_at_once);
  in_child(crowded_often);
  in_child(woken_often);
  in_child(more_ranks);
  in_child(ranks_and_a_word);
  if (argc == 1) in_child(crowded);
  setenv("DYNAMICCL_SOCKET_THREADS", "2", 1);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    bool named = argc == 1;
    for (int a = 1; a < argc; a++) named |= strcmp(argv[a], cases[i].name) == 0;
    if (named) in_child(cases[i].does);
  }
  return 0;
}
