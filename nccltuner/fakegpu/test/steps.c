/* SPDX-License-Identifier: Apache-2.0
 *
 * Two ranks, each a process, with steps of one AllReduce of floats and of compute behind it, which takes 1 ms, and MORE_US besides where the
 * call takes less than LESS_US.
 *   steps BYTES LESS_US MORE_US
 * For each line that it reads, the number of steps that it makes, it prints how many it has made and how many us the last one's call takes: it
 * stops behind one that takes another time than the one before, when another plan is in force. Below 0: one step with a quarter of the bytes. 0: a
 * step, a call that is captured and replayed, and another step; it prints what each of the three takes. At its end it prints which place
 * each rank's stream has. Time is virtual, and every element of each last result is compared.
 */
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../preload/test/meeting.h"
#include "rig.h"

enum { RANKS = 2, FLOAT = 7, SUM = 0, OVER = INT_MIN, TIMES = 3 };
typedef struct { char internal[128]; } ncclUniqueId;
int ncclGetUniqueId(ncclUniqueId *id);
int ncclCommInitRank(void **comm, int nRanks, ncclUniqueId id, int rank);
int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, void *comm, CUstream stream);
int ncclCommDestroy(void *comm);
double *fakegpu_now_ns(CUstream stream); /* fakegpu.h */
int fakegpu_place(CUstream stream);

static const double computeNs = 1e6;
static struct shared {
  ncclUniqueId id;
  struct meeting meeting;
  int steps, made[RANKS], place[RANKS];
  double us[RANKS][TIMES];
} *shared;
static int rank;
static size_t count;
static double lessNs, moreNs;
static CUcontext context;
static CUstream stream;
static CUdeviceptr send, recv;
static float *host;
static void *comm;

static void meet(void) { meet_all(&shared->meeting, RANKS); }

static void call(size_t n) { MUST(ncclAllReduce((void *)send, (void *)recv, n, FLOAT, SUM, comm, stream)); }

static double step(size_t n) {
  double began = *fakegpu_now_ns(stream);
  call(n);
  double ns = *fakegpu_now_ns(stream) - began;
  *fakegpu_now_ns(stream) += computeNs + (ns < lessNs ? moreNs : 0);
  return ns / 1e3;
}

static void compare(size_t n) {
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemcpyDtoH_v2(host, recv, n * sizeof *host));
  for (size_t i = 0; i < n; i++) CHECK(host[i] == (float)(3 + 2 * (i % 7)));
  MUST(cuMemsetD8_v2(recv, 0xff, n * sizeof *host));
}

static double captured(void) {
  CUgraph graph;
  CUgraphExec exec;
  MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  call(count);
  MUST(cuStreamEndCapture(stream, &graph));
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  MUST(cuGraphDestroy(graph));
  double began = *fakegpu_now_ns(stream);
  MUST(cuGraphLaunch(exec, stream));
  double ns = *fakegpu_now_ns(stream) - began;
  compare(count);
  MUST(cuGraphExecDestroy(exec));
  return ns / 1e3;
}

static void open_rank(void) {
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, rank));
  MUST(cuCtxSetCurrent(context));
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuMemAlloc_v2(&send, count * sizeof *host));
  MUST(cuMemAlloc_v2(&recv, count * sizeof *host));
  host = malloc(count * sizeof *host);
  CHECK(host != NULL);
  for (size_t i = 0; i < count; i++) host[i] = (float)(1 + rank + (int)(i % 7));
  MUST(cuMemcpyHtoD_v2(send, host, count * sizeof *host));
  if (rank == 0) MUST(ncclGetUniqueId(&shared->id));
  meet();
  MUST(ncclCommInitRank(&comm, RANKS, shared->id, rank));
}

/* Ranks stop at the same step: they run the same. */
static int make_steps(int most, double *us) {
  static double before;
  for (int i = 1; i <= most; i++) {
    *us = step(count);
    if (before > 0 && fabs(*us - before) > 1e-3) most = i;
    before = *us;
  }
  return most;
}

/* What rank 0 has read, on all ranks. */
static void do_steps(void) {
  double *us = shared->us[rank];
  size_t n = shared->steps < 0 ? count / 4 : count;
  alarm(60);
  if (shared->steps > 0) shared->made[rank] = make_steps(shared->steps, us);
  else us[0] = step(n);
  if (shared->steps == 0) {
    compare(n);
    us[1] = captured();
    us[2] = step(n);
  }
  compare(n);
  meet();
}

static void say(void) {
  int n = shared->steps == 0 ? TIMES : 1;
  CHECK(shared->made[0] == shared->made[1]);
  if (shared->steps > 0) printf("%d ", shared->made[0]);
  for (int i = 0; i < n; i++) {
    CHECK(fabs(shared->us[0][i] - shared->us[1][i]) < 1e-3);
    printf("%.3f%c", shared->us[0][i], i == n - 1 ? '\n' : ' ');
  }
  fflush(stdout);
}

static void died(int number) {
  (void)number;
  _exit(1);
}

int main(int argc, char **argv) {
  char line[16];
  if (argc != 4) return fprintf(stderr, "steps BYTES LESS_US MORE_US\n"), 2;
  count = strtoull(argv[1], NULL, 10) / sizeof *host;
  lessNs = atof(argv[2]) * 1e3;
  moreNs = atof(argv[3]) * 1e3;
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  signal(SIGCHLD, died); /* else rank 0 would wait for it */
  pid_t other = fork();
  CHECK(other >= 0);
  rank = other == 0;
  if (rank == 1) prctl(PR_SET_PDEATHSIG, SIGKILL);
  open_rank();
  while (rank == 0 && fgets(line, sizeof line, stdin) != NULL) {
    shared->steps = atoi(line);
    meet();
    do_steps();
    say();
  }
  for (; rank == 1; do_steps()) {
    meet();
    if (shared->steps == OVER) break;
  }
  if (rank == 0) {
    signal(SIGCHLD, SIG_DFL);
    shared->steps = OVER;
    meet();
  }
  shared->place[rank] = fakegpu_place(stream);
  MUST(ncclCommDestroy(comm));
  int status = 0;
  CHECK(rank == 1 || (waitpid(other, &status, 0) == other && status == 0));
  if (rank == 0) printf("%d %d\n", shared->place[0], shared->place[1]);
  return 0;
}
