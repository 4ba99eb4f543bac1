/* SPDX-License-Identifier: Apache-2.0
 *
 * Four ranks, each a process, with communicators that overlap: all ranks, halves, all again, and even and odd ranks. They make calls and
 * groups of one to six calls, drawn alike on all ranks; in half of the groups each rank calls the communicators in an order of its own.
 * Some are captured and replayed. Every element of every result is compared.
 *   groups SEED DIFFERENT HANG_S
 * Ends once our kernels ran another number of calls on one rank than on another in so many groups, for who runs a call of one half is no
 * business of the other half's, and prints what it made. 1: an element is wrong, or a call failed. 3: no rank has come further for HANG_S
 * seconds, and it says where each stands.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../preload/dynamiccl.h"
#include "../../preload/test/meeting.h"
#include "rig.h"

enum { RANKS = 4, COMMS = 4, MOST_MEMBERS = 6, SLOTS = 48, ROUND = 32, GRAPHS = 3, COUNT = 1500, SLOT_BYTES = RANKS * COUNT * 4 };
enum { FLOAT = 7, BF16 = 9, SUM = 0, MAX = 2 };
enum kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALL_TO_ALL, KINDS };

typedef struct { char internal[128]; } ncclUniqueId;
int ncclGetUniqueId(ncclUniqueId *id);
int ncclCommInitRank(void **comm, int nRanks, ncclUniqueId id, int rank);
int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, void *comm, CUstream stream);
int ncclAllGather(const void *send, void *recv, size_t count, int type, void *comm, CUstream stream);
int ncclReduceScatter(const void *send, void *recv, size_t count, int type, int op, void *comm, CUstream stream);
int ncclBroadcast(const void *send, void *recv, size_t count, int type, int root, void *comm, CUstream stream);
int ncclReduce(const void *send, void *recv, size_t count, int type, int op, int root, void *comm, CUstream stream);
int ncclAlltoAll(const void *send, void *recv, size_t count, int type, void *comm, CUstream stream);
int ncclCommDestroy(void *comm);
int ncclGroupStart(void);
int ncclGroupEnd(void);
double *fakegpu_now_ns(CUstream stream); /* fakegpu.h */

/* What ranks and their parent share. */
static struct shared {
  ncclUniqueId ids[COMMS][2];
  struct meeting meeting;
  atomic_int stop;
  struct { atomic_ulong steps; char at[80]; } ranks[RANKS];
  double nowNs[RANKS];
  int ours[RANKS][ROUND]; /* calls of a step that our kernels ran; -1: no group */
  unsigned long calls, groups, different, replays; /* the first and the last are rank 0's */
} *shared;

/* The communicators, of which a rank has one each: all ranks, halves, all again, even and odd ones. */
static struct comm {
  void *comm;
  int ranks[RANKS], n, me;
} comms[COMMS];
static const char *const names[COMMS] = {"world", "halves", "second world", "even-odd"};

struct member {
  int comm, slot, count, type, op, root;
  enum kind kind;
  CUstream stream;
  uint64_t seed;
};

static int rank;
static CUstream streams[2];
static char *in, *out; /* page-locked memory, which the host fills and reads while calls in other slots are under way */
static struct member flying[SLOTS];
static int numFlying;
static struct graph {
  CUgraphExec exec;
  int n;
  struct member members[MOST_MEMBERS];
} graphs[GRAPHS];

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014): of all ranks alike, and of this one. */
static uint64_t alike, own;
static uint64_t draw(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
static int below(uint64_t *state, int n) { return (int)((draw(state) >> 32) * (uint64_t)n >> 32); }

/* ---- what is sent, and what is to come ---- */

static int parts_sent(const struct member *m) { return m->kind == REDUCE_SCATTER || m->kind == ALL_TO_ALL ? comms[m->comm].n : 1; }
static int parts_got(const struct member *m) { return m->kind == ALL_GATHER || m->kind == ALL_TO_ALL ? comms[m->comm].n : 1; }

/* Small whole numbers, whose sums bfloat16 has. From is a rank of all. */
static float sent(const struct member *m, int from, int i) {
  uint64_t state = m->seed + (uint64_t)from * 7919 + (uint64_t)i * 104729;
  return (float)below(&state, 16);
}

static float wanted(const struct member *m, int i) {
  const struct comm *c = &comms[m->comm];
  int part = i / m->count, of = i % m->count;
  switch (m->kind) {
    case ALL_GATHER: return sent(m, c->ranks[part], of);
    case ALL_TO_ALL: return sent(m, c->ranks[part], c->me * m->count + of);
    case BROADCAST: return sent(m, c->ranks[m->root], i);
    default: break;
  }
  float all = 0;
  for (int r = 0; r < c->n; r++) {
    float one = sent(m, c->ranks[r], m->kind == REDUCE_SCATTER ? c->me * m->count + i : i);
    all = m->op == SUM ? all + one : one > all ? one : all;
  }
  return all;
}

static char *send_of(const struct member *m) { return in + (size_t)m->slot * SLOT_BYTES; }
static char *recv_of(const struct member *m) { return out + (size_t)m->slot * SLOT_BYTES; }

static void put(int type, char *to, int i, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (type == BF16) ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
  else ((uint32_t *)to)[i] = bits;
}

static float get(int type, const char *from, int i) {
  uint32_t bits = type == BF16 ? (uint32_t)((const uint16_t *)from)[i] << 16 : ((const uint32_t *)from)[i];
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void at(const char *what) { snprintf(shared->ranks[rank].at, sizeof shared->ranks[rank].at, "%s", what); }

static void fill(const struct member *m) {
  int n = parts_sent(m) * m->count;
  for (int i = 0; i < n; i++) put(m->type, send_of(m), i, sent(m, rank, i));
}

static void spoil(const struct member *m) { memset(recv_of(m), 0x42, SLOT_BYTES); }

static void compare(const struct member *m) {
  int n = parts_got(m) * m->count;
  if (m->kind == REDUCE && m->root != comms[m->comm].me) return;
  for (int i = 0; i < n; i++) {
    float is = get(m->type, recv_of(m), i);
    if (is == wanted(m, i)) continue;
    fprintf(stderr, "rank %d: call of kind %d on %s, %d elements of type %d: element %d is %g, want %g\n", rank, m->kind, names[m->comm], m->count,
            m->type, i, is, wanted(m, i));
    exit(1);
  }
}

/* ---- steps ---- */

static void wait_for_all(void) {
  at("waiting for its streams");
  for (int i = 0; i < 2; i++) MUST(cuStreamSynchronize(streams[i]));
}

static void drain(void) {
  wait_for_all();
  for (int i = 0; i < numFlying; i++) compare(&flying[i]);
  numFlying = 0;
}

static void issue(const struct member *m) {
  const struct comm *c = &comms[m->comm];
  const void *send = send_of(m);
  void *recv = recv_of(m);
  size_t n = (size_t)m->count;
  switch (m->kind) {
    case ALL_REDUCE: MUST(ncclAllReduce(send, recv, n, m->type, m->op, c->comm, m->stream)); break;
    case ALL_GATHER: MUST(ncclAllGather(send, recv, n, m->type, c->comm, m->stream)); break;
    case REDUCE_SCATTER: MUST(ncclReduceScatter(send, recv, n, m->type, m->op, c->comm, m->stream)); break;
    case BROADCAST: MUST(ncclBroadcast(send, recv, n, m->type, m->root, c->comm, m->stream)); break;
    case REDUCE: MUST(ncclReduce(send, recv, n, m->type, m->op, m->root, c->comm, m->stream)); break;
    default: MUST(ncclAlltoAll(send, recv, n, m->type, c->comm, m->stream)); break;
  }
}

/* A communicator's calls keep their order; which communicator is next is this rank's business, or drawn alike, as in most programs. */
static void issue_group(const struct member *members, int n) {
  uint64_t same = draw(&alike), *order = below(&alike, 2) ? &same : &own;
  int done = 0, first[COMMS] = {0};
  char text[80] = "ending a group of";
  MUST(ncclGroupStart());
  while (done < n) {
    int c = below(order, COMMS), i = first[c];
    while (i < n && members[i].comm != c) i++;
    first[c] = i + 1;
    if (i >= n) continue;
    issue(&members[i]);
    done++;
    strncat(text, " ", sizeof text - strlen(text) - 1);
    strncat(text, names[c], sizeof text - strlen(text) - 1);
  }
  at(text);
  MUST(ncclGroupEnd());
}

/* On one stream, or that of each world for itself and its halves. */
static int draw_members(struct member *members, int most, int oneStream, int slot) {
  static const int counts[] = {60, COUNT};
  int n = 1 + below(&alike, most), one = oneStream || below(&alike, 3) > 0, stream = below(&alike, 2);
  for (int i = 0; i < n; i++) {
    int c = below(&alike, COMMS), kind = below(&alike, 2 * KINDS);
    members[i] = (struct member){.comm = c, .slot = slot + i, .kind = kind < KINDS ? (enum kind)kind : ALL_REDUCE, .count = counts[below(&alike, 2)],
                                 .type = below(&alike, 3) ? FLOAT : BF16, .op = below(&alike, 3) ? SUM : MAX, .stream = streams[one ? stream : c / 2],
                                 .root = below(&alike, comms[c].n)};
    members[i].seed = draw(&alike);
    fill(&members[i]);
    spoil(&members[i]);
  }
  return n;
}

static unsigned long long run_by_ours(void) {
  static size_t (*asked)(struct dynamicclCalls *, size_t);
  struct dynamicclCalls of[64];
  unsigned long long n = 0;
  if (asked == NULL) *(void **)&asked = dlsym(RTLD_DEFAULT, "dynamicclIntercepted");
  CHECK(asked != NULL);
  size_t functions = asked(of, 64);
  CHECK(functions <= 64);
  for (size_t i = 0; i < functions; i++) n += of[i].kernels;
  return n;
}

static void capture(struct graph *g, int slot) {
  CUgraph graph;
  if (g->exec != NULL) MUST(cuGraphExecDestroy(g->exec));
  g->n = draw_members(g->members, MOST_MEMBERS, 1, slot);
  MUST(cuStreamBeginCapture_v2(g->members[0].stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  issue_group(g->members, g->n);
  MUST(cuStreamEndCapture(g->members[0].stream, &graph));
  MUST(cuGraphInstantiateWithFlags(&g->exec, graph, 0));
  MUST(cuGraphDestroy(graph));
}

static void replay(struct graph *g) {
  drain(); /* of either stream */
  for (int i = 0; i < g->n; i++) spoil(&g->members[i]);
  at("replaying");
  MUST(cuGraphLaunch(g->exec, g->members[0].stream));
  wait_for_all();
  for (int i = 0; i < g->n; i++) compare(&g->members[i]);
  if (rank == 0) shared->replays++;
}

static void step(int number) {
  int what = below(&alike, 100), g = below(&alike, GRAPHS), groups = what < 50, most = groups ? MOST_MEMBERS : 1;
  unsigned long long before = run_by_ours();
  shared->ours[rank][number] = -1;
  if (what >= 90 && graphs[g].exec != NULL) return replay(&graphs[g]);
  if (what >= 85) {
    drain();
    capture(&graphs[g], SLOTS + g * MOST_MEMBERS);
  } else {
    if (numFlying + most > SLOTS || below(&own, 6) == 0) drain();
    int n = draw_members(&flying[numFlying], most, 0, numFlying);
    if (groups) issue_group(&flying[numFlying], n);
    else issue(&flying[numFlying]);
    numFlying += n;
    if (rank == 0) shared->calls += (unsigned long)n;
    if (!groups) return;
  }
  shared->ours[rank][number] = (int)(run_by_ours() - before);
}

/* ---- ranks ---- */

static void meet(void) {
  at("waiting for the other ranks");
  meet_all(&shared->meeting, RANKS);
}

static void count_round(unsigned long different) {
  for (int i = 0; i < ROUND; i++) {
    int least = MOST_MEMBERS, most = -1;
    for (int r = 0; r < RANKS; r++) {
      if (shared->ours[r][i] < least) least = shared->ours[r][i];
      if (shared->ours[r][i] > most) most = shared->ours[r][i];
    }
    shared->groups += least >= 0;
    shared->different += most > least;
  }
  atomic_store(&shared->stop, shared->different >= different);
}

static void make_comms(void) {
  for (int c = 0; c < COMMS; c++) {
    int color = c == 1 ? rank / 2 : c == 3 ? rank % 2 : 0;
    for (int r = 0; r < RANKS; r++) {
      if ((c == 1 && r / 2 != color) || (c == 3 && r % 2 != color)) continue;
      if (r == rank) comms[c].me = comms[c].n;
      comms[c].ranks[comms[c].n++] = r;
    }
    if (comms[c].me == 0) MUST(ncclGetUniqueId(&shared->ids[c][color]));
    meet();
    MUST(ncclCommInitRank(&comms[c].comm, comms[c].n, shared->ids[c][color], comms[c].me));
  }
}

/* Virtual clocks of ranks do not wait for each other, as GPUs do in every call, and times of calls between clocks that differ are no samples. */
static void agree_on_time(void) {
  double latest = 0;
  for (int i = 0; i < 2; i++) latest = *fakegpu_now_ns(streams[i]) > latest ? *fakegpu_now_ns(streams[i]) : latest;
  shared->nowNs[rank] = latest;
  meet();
  for (int r = 0; r < RANKS; r++) latest = shared->nowNs[r] > latest ? shared->nowNs[r] : latest;
  for (int i = 0; i < 2; i++) *fakegpu_now_ns(streams[i]) = latest;
}

static void run(uint64_t seed, unsigned long different) {
  CUcontext context;
  alike = seed;
  own = seed + 1 + (uint64_t)rank;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, rank));
  MUST(cuCtxSetCurrent(context));
  for (int i = 0; i < 2; i++) MUST(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
  MUST(cuMemAllocHost_v2((void **)&in, (SLOTS + GRAPHS * MOST_MEMBERS) * (size_t)SLOT_BYTES));
  MUST(cuMemAllocHost_v2((void **)&out, (SLOTS + GRAPHS * MOST_MEMBERS) * (size_t)SLOT_BYTES));
  make_comms();
  while (!atomic_load(&shared->stop)) {
    for (int i = 0; i < ROUND; i++) {
      step(i);
      atomic_fetch_add(&shared->ranks[rank].steps, 1);
    }
    drain();
    agree_on_time();
    if (rank == 0) count_round(different);
    meet();
  }
  for (int g = 0; g < GRAPHS; g++)
    if (graphs[g].exec != NULL) MUST(cuGraphExecDestroy(graphs[g].exec));
  for (int c = 0; c < COMMS; c++) MUST(ncclCommDestroy(comms[c].comm));
}

int main(int argc, char **argv) {
  pid_t pids[RANKS];
  if (argc != 4) return fprintf(stderr, "groups SEED DIFFERENT HANG_S\n"), 2;
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  for (rank = 0; rank < RANKS; rank++) {
    if ((pids[rank] = fork()) != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    run(strtoull(argv[1], NULL, 10), strtoul(argv[2], NULL, 10));
    return 0;
  }
  int left = RANKS, code = 0, hangS = atoi(argv[3]);
  unsigned long seen = 0, now;
  for (time_t since = time(NULL); left > 0 && code == 0; usleep(1000)) {
    int status;
    if (waitpid(-1, &status, WNOHANG) > 0) {
      left--;
      if (status != 0) code = 1;
    }
    now = 0;
    for (int r = 0; r < RANKS; r++) now += atomic_load(&shared->ranks[r].steps);
    if (now != seen) seen = now, since = time(NULL);
    else if (time(NULL) - since > hangS) code = 3;
  }
  for (int r = 0; r < RANKS && code != 0; r++) {
    if (code == 3) fprintf(stderr, "rank %d, step %lu: %s\n", r, atomic_load(&shared->ranks[r].steps), shared->ranks[r].at);
    kill(pids[r], SIGKILL);
  }
  printf("%lu calls, %lu groups, %lu of them different, %lu replays\n", shared->calls, shared->groups, shared->different, shared->replays);
  return code;
}
