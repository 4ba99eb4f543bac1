/* SPDX-License-Identifier: Apache-2.0
 *
 *   LD_PRELOAD=libdynamiccl.so test_room FOLDER LIBCUDA     FOLDER has the fake libnccl.so.2
 * How much GPU memory the communicators of a process have for scratch: the bound, what is spare, and ranks of which one is over its own.
 */
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "lsa_steps.h"

#define MIB 8 /* DYNAMICCL_SCRATCH_MIB (write_kernels) */

static void bound(unsigned mib) {
  char text[16];
  snprintf(text, sizeof text, "%u", mib);
  setenv("DYNAMICCL_SCRATCH_TOTAL_MIB", text, 1);
}

/* GPU memory that this process has: the stand-in's are files without a name, of which it keeps its own open. */
static unsigned has_mib(void) {
  unsigned long bytes = 0;
  DIR *folder = opendir("/proc/self/fd");
  CHECK(folder != NULL);
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    char path[sizeof "/proc/self/fd/" + sizeof entry->d_name], name[64] = "";
    struct stat status;
    snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
    if (readlink(path, name, sizeof name - 1) > 0 && strncmp(name, "/memfd:fakegpu", 14) == 0 && stat(path, &status) == 0) bytes += (unsigned long)status.st_size;
  }
  closedir(folder);
  return (unsigned)(bytes >> 20);
}

static struct dyn_lsa *offer(struct dyn_offer *own) {
  memset(own, 0, sizeof *own);
  struct dyn_lsa *it = preload->device->offer(COMM_ID, (uint32_t)numRanks, (uint32_t)rank, own);
  CHECK((it != NULL) == (own->pid != 0));
  return it;
}
static void leave(struct dyn_lsa *it) { preload->device->close(it); }

/* A communicator, as NCCL and the plugin make it: where a rank refuses none opens anything, and all give theirs back. NULL: NCCL runs it. */
static struct dyn_lsa *join(void) {
  struct dyn_lsa *it = offer(&shared->offers[rank]);
  meet();
  bool all = true;
  for (int r = 0; r < numRanks; r++) all &= shared->offers[r].pid != 0;
  if (all) CHECK(preload->device->open(it, shared->offers));
  meet();
  if (all || it == NULL) return it;
  leave(it);
  return NULL;
}

/* A call of a communicator, whose kernel runs. */
static void call(struct dyn_lsa *it) {
  struct step s = {.collective = ALL_REDUCE, .count = 700, .stream = streams[0], .action = LSA(0, 2)};
  lsa = it;
  asked = 0;
  bind_lsa();
  fill(&s, 0);
  make_call(&s, 0, 0);
  wait_for_all();
  compare(&s, 0, true);
  CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
}

/* prepare has made one. */
static void begin_room(unsigned mib) {
  bound(mib);
  prepare();
}

/* Three find room; what one of them had serves the next. */
static void bounded(void) {
  begin_room(3 * MIB + MIB - 1);
  struct dyn_lsa *first = lsa, *second = join();
  uint64_t at = shared->offers[rank].at;
  struct dyn_lsa *third = join();
  unsigned has = has_mib();
  CHECK(second != NULL && third != NULL);
  for (int i = 0; i < 3; i++) CHECK(join() == NULL, "one more than the bound");
  CHECK(has_mib() == has, "%u MiB, before %u", has_mib(), has);
  leave(second);
  for (int i = 0; i < 3; i++) {
    CHECK((second = join()) != NULL && shared->offers[rank].at == at, "what is spare serves the next");
    CHECK(has_mib() == has && join() == NULL);
    call(second);
    meet();
    leave(second);
  }
  call(first);
  call(third);
  meet();
}

/* Rank 0 may have one, the other many: they agree on NCCL, again and again, and rank 1 keeps no more than one that it made in vain. */
static void differ(void) {
  begin_room(rank == 0 ? MIB : 100 * MIB);
  struct dyn_lsa *first = lsa;
  unsigned has = has_mib();
  for (int i = 0; i < 4; i++) CHECK(join() == NULL, "rank 0 has no room");
  CHECK(has_mib() == has + (rank == 0 ? 0 : MIB), "%u MiB, before %u", has_mib(), has);
  call(first);
  meet();
  leave(first);
  struct dyn_lsa *next = join();
  CHECK(next != NULL && has_mib() == has + (rank == 0 ? 0 : MIB));
  call(next);
  meet();
}

/* What the program resets is gone, with what was spare there, whatever became of its communicators. */
static void reset(void) {
  begin_room(2 * MIB);
  struct dyn_lsa *first = lsa, *second = join();
  uint64_t at = shared->offers[rank].at;
  CHECK(join() == NULL);
  leave(second);
  meet();
  CHECK(((CUresult(*)(CUdevice))dlsym(dlopen(driverPath, RTLD_NOW), "cuDevicePrimaryCtxReset_v2"))(rank) == 0);
  for (int i = 0; i < STREAMS; i++) CHECK(cuda.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) == 0);
  second = join();
  CHECK(second != NULL && shared->offers[rank].at != at, "what was spare went with the context");
  struct dyn_lsa *third = join();
  CHECK(third != NULL && join() == NULL);
  leave(first); /* of before */
  CHECK(join() == NULL, "it has nothing to give back");
  call(second);
  meet();
}

static CUgraph graph_of(struct step *s) {
  CUgraph graph;
  CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
  capturing = true;
  make_call(s, 0, s->seed);
  capturing = false;
  CHECK(cuda.cuStreamEndCapture(streams[0], &graph) == 0);
  return graph;
}

/* late: how long this rank comes late for the last one, us. */
static void launch(struct step *s, CUgraphExec exec, unsigned late) {
  for (int i = 0; i < 3; i++) {
    s->seed = random_of(s->seed);
    fill(s, 0);
    meet();
    if (i == 2) usleep(late);
    CHECK(cuda.cuGraphLaunch(exec, streams[0]) == 0);
    if (i < 2) wait_for_all();
    if (i < 2) compare(s, 0, true);
    meet();
  }
}

/* A graph of a call, replayed. */
static CUgraphExec replay(struct step *s, CUgraph *graph, unsigned late) {
  CUgraphExec exec;
  *graph = graph_of(s);
  CHECK(cuda.cuGraphInstantiateWithFlags(&exec, *graph, 0) == 0);
  launch(s, exec, late);
  return exec;
}

/* Communicators made one after the other, each with a graph: where that is gone before the communicator, or behind it, they have one piece of
 * memory between them, and are more than may stay behind. One that is destroyed waits for the replay that is under way, also where the program
 * has destroyed the graph by then. */
static void graphs(void) {
  begin_room(MIB);
  unsigned has = has_mib();
  for (unsigned n = 0; n < 20; n++) {
    struct step s = {.collective = ALL_REDUCE, .count = 700, .stream = streams[0], .action = LSA(0, 2), .seed = n};
    CUgraph graph;
    bool before = n & 1;
    if (n > 0) CHECK((lsa = join()) != NULL, "communicator %u", n);
    asked = 0;
    bind_lsa();
    CUgraphExec exec = replay(&s, &graph, rank == 1 && n < 4 ? 50000 : 0);
    if (n & 2) CHECK(cuda.cuGraphDestroy(graph) == 0);
    if (before) CHECK(cuda.cuGraphExecDestroy(exec) == 0 && (n & 2 || cuda.cuGraphDestroy(graph) == 0));
    CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    compare(&s, 0, true);
    leave(lsa);
    meet();
    if (n < 4 && !before) CHECK(join() == NULL, "memory of a graph that may be replayed");
    if (!before) CHECK(cuda.cuGraphExecDestroy(exec) == 0 && (n & 2 || cuda.cuGraphDestroy(graph) == 0));
    wait_for_all();
    CHECK(has_mib() == has, "%u MiB, before %u", has_mib(), has);
  }
}

/* An executable graph that is updated to another graph of the communicator's, also while it is under way, and all of whose graphs are gone; one of a
 * clone: it has the memory as long as it may be launched, and what it had before it was updated is counted no more. */
static void updated(void) {
  begin_room(MIB);
  CUresult (*update)(CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo *) = dlsym(dlopen(driverPath, RTLD_NOW), "cuGraphExecUpdate_v2");
  CUresult (*clone)(CUgraph *, CUgraph) = dlsym(dlopen(driverPath, RTLD_NOW), "cuGraphClone");
  unsigned has = has_mib();
  for (unsigned n = 0; n < 20; n++) {
    struct step s = {.collective = ALL_REDUCE, .count = 700, .stream = streams[0], .action = LSA(0, 2), .seed = n}, then = {.collective = ALL_REDUCE, .count = 5000, .stream = streams[0], .action = LSA(2, 3), .seed = n};
    CUgraph graph, other;
    CUgraphExec exec, second;
    CUgraphExecUpdateResultInfo info;
    if (n > 0) CHECK((lsa = join()) != NULL, "communicator %u", n);
    asked = 0;
    bind_lsa();
    exec = replay(&s, &graph, rank == 1 ? 20000 : 0);
    for (unsigned i = 0; i <= n % 3; i++) { /* the last replay is under way */
      CHECK(cuda.cuGraphDestroy(graph) == 0);
      graph = graph_of(&then);
      CHECK(update(exec, graph, &info) == 0 && info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
      wait_for_all();
      launch(&then, exec, 0);
      wait_for_all();
    }
    CHECK(clone(&other, graph) == 0 && cuda.cuGraphDestroy(graph) == 0 && cuda.cuGraphInstantiateWithFlags(&second, other, 0) == 0);
    CHECK(cuda.cuGraphDestroy(other) == 0);
    launch(&then, second, 0);
    wait_for_all();
    if (n & 1) CHECK(cuda.cuGraphExecDestroy(exec) == 0);
    CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    leave(lsa);
    meet();
    CHECK(join() == NULL, "memory of a graph that may be replayed");
    CHECK(cuda.cuGraphExecDestroy(n & 1 ? second : exec) == 0);
    if (!(n & 1)) {
      CHECK(join() == NULL, "memory of a clone that may be replayed");
      CHECK(cuda.cuGraphExecDestroy(second) == 0);
    }
    wait_for_all();
    CHECK(has_mib() == has, "%u MiB, before %u", has_mib(), has);
  }
}

/* Memory of which the graphs are gone serves a communicator that is made while a kernel of another one waits for a rank that comes to that
 * behind the making. CUDA may wait for all that is on the GPU where memory of peers is closed, so that has its time at a communicator's end. */
static void beside(void) {
  begin_room(2 * MIB);
  struct dyn_lsa *first = lsa;
  for (unsigned n = 0; n < 4; n++) {
    struct step s = {.collective = ALL_REDUCE, .count = 700, .stream = streams[0], .action = LSA(0, 2), .seed = n};
    CUgraph graph;
    CHECK((lsa = join()) != NULL);
    asked = 0;
    bind_lsa();
    CUgraphExec exec = replay(&s, &graph, 0);
    CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    leave(lsa);
    CHECK(cuda.cuGraphExecDestroy(exec) == 0 && cuda.cuGraphDestroy(graph) == 0);
    wait_for_all(); /* for what was under way keeps what a graph holds */
    lsa = first;
    asked = 0;
    bind_lsa();
    fill(&s, 0);
    meet();
    if (rank == 0) make_call(&s, 0, s.seed);
    struct dyn_offer own;
    leave(offer(&own)); /* as where another rank refuses */
    struct dyn_lsa *next = join();
    if (rank == 1) make_call(&s, 0, s.seed);
    wait_for_all();
    compare(&s, 0, true);
    CHECK(next != NULL && find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    leave(first);
    meet();
    first = next;
  }
}

/* An error ends the capture: no graph comes of it, and none is left. */
static void invalid(void) {
  begin_room(MIB);
  for (int n = 0; n < 20; n++) {
    struct step s = {.collective = ALL_REDUCE, .count = 10, .stream = streams[0], .action = LSA(0, 1)};
    CUgraph graph;
    if (n > 0) CHECK((lsa = join()) != NULL, "communicator %d", n);
    asked = 0;
    bind_lsa();
    CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
    capturing = true;
    make_call(&s, 0, 0);
    capturing = false;
    CHECK(cuda.cuStreamSynchronize(streams[0]) != 0 && cuda.cuStreamEndCapture(streams[0], &graph) != 0);
    CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    leave(lsa);
    meet();
  }
}

#define THREADS 8
static struct one {
  pthread_t thread;
  struct dyn_offer offer;
  struct dyn_lsa *lsa;
} ones[THREADS];
static void *offer_there(void *argument) {
  struct one *one = argument;
  CUcontext context;
  CHECK(cuda.cuDevicePrimaryCtxRetain(&context, rank) == 0 && cuda.cuCtxSetCurrent(context) == 0);
  one->lsa = offer(&one->offer);
  return NULL;
}

/* Threads that make communicators at once share what there is. */
static void threads(void) {
  bound(3 * MIB);
  for (int round = 0; round < 20; round++) {
    unsigned found = 0;
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&ones[i].thread, NULL, offer_there, &ones[i]) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(ones[i].thread, NULL) == 0);
    for (int i = 0; i < THREADS; i++) found += ones[i].lsa != NULL;
    for (int i = 0; i < THREADS; i++)
      if (ones[i].lsa != NULL) leave(ones[i].lsa);
    CHECK(found == 3 && has_mib() == 3 * MIB, "round %d: %u find room, %u MiB", round, found, has_mib());
  }
}

/* A process with several GPUs has the room on each. */
static void gpus(void) {
  struct dyn_offer own;
  bound(MIB);
  for (int i = 0; i < 4; i++) {
    CUcontext context;
    CHECK(cuda.cuDevicePrimaryCtxRetain(&context, i) == 0 && cuda.cuCtxSetCurrent(context) == 0);
    CHECK(offer(&own) != NULL, "GPU %d", i);
    CHECK(offer(&own) == NULL, "GPU %d", i);
  }
}

/* The child of a fork has nothing of it, neither used nor spare; its parent goes on. */
static void forked(void) {
  begin_room(2 * MIB);
  struct dyn_lsa *first = lsa;
  leave(join());
  uint64_t at = shared->offers[rank].at;
  meet();
  int status;
  pid_t child = fork();
  if (child == 0) {
    struct dyn_offer own[2];
    CHECK(offer(&own[0]) != NULL && offer(&own[1]) != NULL, "the parent's counts");
    CHECK(own[0].at != at && own[1].at != at, "the parent's memory");
    CHECK(offer(&own[0]) == NULL);
    _exit(0);
  }
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  CHECK(join() != NULL && shared->offers[rank].at == at && join() == NULL);
  call(first);
  meet();
}

/* What CUDA does not give is not counted. Without a setting one communicator has what it is given, however much that is. */
static void in_vain(void) {
  struct dyn_offer own;
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0 && signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
  CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){64 << 20, limit.rlim_max}) == 0);
  unsetenv("DYNAMICCL_SCRATCH_TOTAL_MIB");
  setenv("DYNAMICCL_SCRATCH_MIB", "600", 1);
  CHECK(offer(&own) == NULL && has_mib() == 0);
  setenv("DYNAMICCL_SCRATCH_MIB", "8", 1);
  bound(MIB - 1);
  CHECK(offer(&own) == NULL && has_mib() == 0, "less than one");
  bound(MIB);
  CHECK(offer(&own) != NULL, "what was not given is counted");
}

int main(int argc, char **argv) {
  char kernels[4096];
  begin_program(argc, argv, kernels);
  play("bounded", 3, bounded);
  play("differ", 2, differ);
  play("reset", 2, reset);
  play("graphs", 2, graphs);
  play("updated", 2, updated);
  play("beside", 2, beside);
  play("invalid", 2, invalid);
  play("threads", 2, threads);
  play("gpus", 2, gpus);
  play("forked", 2, forked);
  play("in vain", 2, in_vain);
  unlink(kernels);
  return 0;
}
