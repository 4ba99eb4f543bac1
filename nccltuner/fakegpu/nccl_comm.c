/* SPDX-License-Identifier: Apache-2.0
 *
 * Unique ids, and communicators from birth to death.
 */
#include <dlfcn.h>
#include <errno.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "../worker/nccl_hash.h"
#include "nccl_fake.h"

_Thread_local char nccl_error[1024];

ncclResult_t nccl_fail(ncclResult_t result, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(nccl_error, sizeof nccl_error, format, args);
  va_end(args);
  return result;
}

FAKEGPU_API const char *ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return nccl_error;
}

FAKEGPU_API const char *ncclGetErrorString(ncclResult_t result) {
  static const char *const texts[] = {"no error",         "unhandled cuda error", "unhandled system error",
                                      "internal error",   "invalid argument",     "invalid usage",
                                      "remote process exited or there was a network error"};
  return result >= 0 && result < 7 ? texts[result] : "unknown result code";
}

size_t nccl_type_bytes(int type) { return type == ncclBfloat16 ? 2 : type == ncclFloat32 ? 4 : 0; }

/* Who polls an event hears of it a moment later, on the clock that all ranks share. */
static void tell(double nowNs) {
  static const double laterNs = 700;
  clock_virtual(nowNs > 0 ? (uint64_t)(nowNs + laterNs) : 0);
}

/* The tables and FAKEGPU_OPTIONS as dynamiccl-rank's command line; the texts must last. */
static int read_options(struct options *options, char *error, size_t errorSize) {
  static char *arguments[128];
  static char phases[2][512]; /* without and with load */
  const char *table = getenv("FAKEGPU_TABLE"), *loaded = getenv("FAKEGPU_LOADED_TABLE");
  const char *more = getenv("FAKEGPU_OPTIONS");
  const char *fixed[] = {"libnccl", "--noise", "0", "--skew", "0", "--gap", "0", "--proxy-lag", "0", "--phase", phases[0],
                         "--phase", phases[1]};
  int numFixed = (int)(sizeof fixed / sizeof *fixed) - (loaded == NULL ? 2 : 0), n = 0, max = (int)(sizeof arguments / sizeof *arguments);
  if (table == NULL) return snprintf(error, errorSize, "FAKEGPU_TABLE is not set: name a CSV of recorded costs"), -1;
  snprintf(phases[0], sizeof phases[0], "%s:1", table);
  snprintf(phases[1], sizeof phases[1], "%s:1", loaded == NULL ? "" : loaded);
  for (int i = 0; i < numFixed; i++) arguments[n++] = (char *)fixed[i];
  char *text = strdup(more == NULL ? "" : more), *word;
  while (text != NULL && n < max && (word = strsep(&text, " ")) != NULL)
    if (*word != '\0') arguments[n++] = word;
  return options_parse(options, n, arguments, error, errorSize);
}

/* Before anything of this library is called: ncclGetVersion may be the first. */
__attribute__((constructor)) static void set_version(void) {
  struct options options;
  char error[512];
  if (read_options(&options, error, sizeof error) == 0)
    nccl_version_set(options.ncclVersion, options.maxTunerAbi, options.maxProfilerAbi);
  fakegpu_on_look(nccl_looked);
  fakegpu_on_query(tell);
}

FAKEGPU_API ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  /* As NCCL's: a number, the address of its bootstrap, and zeros (struct ncclBootstrapHandle, src/include/bootstrap.h). */
  struct { uint64_t magic; struct sockaddr_in at; } handle = {.at = {.sin_family = AF_INET, .sin_port = htons(1), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
  if (getrandom(&handle.magic, sizeof handle.magic, 0) != sizeof handle.magic) return nccl_fail(ncclSystemError, "getrandom: %s", strerror(errno));
  memset(id, 0, sizeof *id);
  memcpy(id, &handle, sizeof handle);
  return 0;
}

void nccl_barrier(struct ncclComm *comm) {
  char error[512];
  if (sync_barrier(comm->sync, comm->rank.rank, ++comm->barriers, -1, error, sizeof error) == 0) return;
  fprintf(stderr, "libnccl stand-in: rank %d hangs: %s\n", comm->rank.rank, error);
  for (;;) pause();
}

static void path_of(const ncclUniqueId *id, const char *what, char *path, size_t size) {
  const char *dir = getenv("FAKEGPU_DIR");
  uint64_t name;
  memcpy(&name, id->internal, sizeof name);
  snprintf(path, size, "%s/fakegpu-%016llx.%s", dir == NULL ? "/dev/shm" : dir, (unsigned long long)name, what);
}

static ncclResult_t map_shared(struct ncclComm *comm, int nRanks, int rank, const char *path) {
  size_t bytes = (size_t)nRanks * (HOST_BYTES + STEPS_BYTES + SHOWN_BYTES + 2 * CHUNK_BYTES);
  char *shared = MAP_FAILED;
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0) shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  if (shared == MAP_FAILED) return nccl_fail(ncclSystemError, "%s: %s: set FAKEGPU_DIR", path, strerror(errno));
  comm->shared = shared;
  comm->mover = nccl_mover_new(rank, nRanks, shared, bytes);
  return comm->mover != NULL ? 0 : nccl_fail(ncclSystemError, "out of memory");
}

/* Nodes are told apart by NCCL_HOSTID alone. */
static int count_nodes(struct ncclComm *comm, int nRanks) {
  int nodes = 0;
  for (int r = 0; r < nRanks; r++) {
    int seen = 0;
    for (int q = 0; q < r && !seen; q++) seen = strncmp(comm->shared + HOST_BYTES * r, comm->shared + HOST_BYTES * q, HOST_BYTES) == 0;
    nodes += !seen;
  }
  return nodes;
}

/* Files of the meeting are gone once all ranks have them open. */
static ncclResult_t meet(struct ncclComm *comm, int nRanks, int rank, const ncclUniqueId *id, int *nNodes) {
  char syncPath[512], dataPath[512], error[512];
  const char *host = getenv("NCCL_HOSTID");
  path_of(id, "sync", syncPath, sizeof syncPath);
  path_of(id, "data", dataPath, sizeof dataPath);
  comm->sync = sync_open(syncPath, nRanks, 0, nRanks, error, sizeof error);
  if (comm->sync == NULL || sync_enter(comm->sync, rank, error, sizeof error) != 0)
    return nccl_fail(ncclInvalidArgument, "%s", error);
  ncclResult_t result = map_shared(comm, nRanks, rank, dataPath);
  if (result != 0) return result;
  snprintf(comm->shared + HOST_BYTES * rank, HOST_BYTES, "%s", host == NULL ? "" : host);
  if (sync_barrier(comm->sync, rank, ++comm->barriers, -1, error, sizeof error) != 0)
    return nccl_fail(ncclRemoteError, "%s", error);
  if (rank == 0) {
    unlink(syncPath);
    unlink(dataPath);
  }
  *nNodes = count_nodes(comm, nRanks);
  return 0;
}

/* As NCCL has it by then (ncclNvmlEnsureInitialized, src/misc/nvmlwrap.cc), and keeps it. */
static void open_nvml(void) { (void)dlopen("libnvidia-ml.so.1", RTLD_NOW); }

/* What run.c prepares in dynamiccl-rank. */
static ncclResult_t prepare(struct ncclComm *comm, int nRanks, int nNodes, int rank, uint64_t commId, const char *name) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  char error[512] = "";
  pthread_once(&once, open_nvml);
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  int wrong = read_options(&comm->options, error, sizeof error);
  pthread_mutex_unlock(&lock);
  if (wrong) return nccl_fail(ncclInvalidArgument, "%s", error);
  comm->options.nRanks = nRanks;
  comm->options.nNodes = nNodes;
  comm->options.workload = NULL; /* the program's own calls */
  comm->plan = calloc(1, sizeof *comm->plan);
  if (comm->plan == NULL) return nccl_fail(ncclSystemError, "out of memory");
  if (plan_build(comm->plan, &comm->options, error, sizeof error) != 0)
    return nccl_fail(ncclInvalidArgument, "%s", error);
  comm->rank = (struct rank){.plan = comm->plan, .sync = comm->sync, .rank = rank, .commName = name};
  timeline_init(&comm->rank.timeline, &comm->options.model, rank);
  comm->rank.sums = calloc(2 * MAX_ITEMS, sizeof *comm->rank.sums); /* of two phases */
  comm->rank.proxy = proxy_start(comm->options.proxyLag);
  if (comm->options.ncclVersion >= 23100) comm->rank.kernels = proxy_start(comm->options.proxyLag);
  if (comm->rank.sums == NULL || comm->rank.proxy == NULL)
    return nccl_fail(ncclSystemError, "out of memory or threads");
  if (comm_create_as(&comm->comm, &comm->rank, 0, commId) == 0) return 0;
  return nccl_fail(ncclInternalError, "%s", comm->rank.error);
}

/* *out was made before where somebody asks after it meanwhile. */
ncclResult_t nccl_comm_make(ncclComm_t *out, int nRanks, const ncclUniqueId *id, int rank, const char *name) {
  if (nRanks < 2 || nRanks > MAX_HARNESS_RANKS || rank < 0 || rank >= nRanks)
    return nccl_fail(ncclInvalidArgument, "rank %d of %d: the stand-in has 2 to %d ranks", rank, nRanks,
                     MAX_HARNESS_RANKS);
  if (nccl_faults_wrong() != NULL) return nccl_fail(ncclInvalidArgument, "FAKEGPU_FAULT: %s", nccl_faults_wrong());
  static atomic_int made;
  const bool early = *out != NULL;
  struct ncclComm *comm = early ? *out : calloc(1, sizeof *comm);
  int nNodes = 1;
  if (comm == NULL) return nccl_fail(ncclSystemError, "out of memory");
  comm->nth = atomic_fetch_add(&made, 1);
  *out = comm; /* before anything meets it, as in ncclCommInitRankDev (src/init.cc) */
  ncclResult_t result = meet(comm, nRanks, rank, id, &nNodes);
  if (result == 0) result = prepare(comm, nRanks, nNodes, rank, nccl_comm_hash(id), name);
  if (result == 0) nccl_barrier(comm);
  else if (!early) *out = NULL; /* the process is of no use any more: nothing is tidied up */
  return result;
}

FAKEGPU_API ncclResult_t ncclCommInitRank(ncclComm_t *out, int nRanks, ncclUniqueId id, int rank) {
  *out = NULL;
  return nccl_in_group() ? nccl_group_make(out, nRanks, &id, rank) : nccl_comm_make(out, nRanks, &id, rank, NULL);
}

FAKEGPU_API ncclResult_t ncclCommCount(ncclComm_t comm, int *count) {
  *count = comm->plan->nRanks;
  return 0;
}

FAKEGPU_API ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank) {
  *rank = comm->rank.rank;
  return 0;
}

static ncclResult_t end(ncclComm_t comm) {
  proxy_drain(comm->rank.proxy);
  if (comm->rank.kernels != NULL) proxy_drain(comm->rank.kernels);
  int failed = comm_destroy(&comm->comm, &comm->rank);
  if (failed) nccl_fail(ncclInternalError, "%s", comm->rank.error);
  proxy_stop(comm->rank.proxy);
  if (comm->rank.kernels != NULL) proxy_stop(comm->rank.kernels);
  sync_leave(comm->sync, comm->rank.rank, 0);
  nccl_mover_drop(comm->mover);
  plan_free(comm->plan);
  free(comm->plan);
  free(comm->rank.sums);
  free(comm->sync);
  free(comm);
  return failed ? ncclInternalError : 0;
}

static int is_alone(const struct ncclComm *comm) {
  int same = 0;
  for (int r = 0; r < comm->plan->nRanks; r++) same += sync_process(comm->sync, r) == sync_process(comm->sync, comm->rank.rank);
  return same == 1;
}

/* 2.32.3's waits for the ranks of the node (commDestroySync calls bootstrapIntraNodeBarrier), 2.30.7's for none. Where one thread has several ranks
 * it destroys one after the other all the same (gputest/asked, 2 H100). */
FAKEGPU_API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (nccl_version() >= 23203 && is_alone(comm)) nccl_barrier(comm);
  nccl_finish(comm);
  return end(comm);
}

/* It waits for nobody: jobs give up in their own time. What waits for other ranks in a thread of its own keeps what it has. */
FAKEGPU_API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm->mover != NULL) atomic_store(&comm->mover->aborted, 1);
  return comm->busy == NCCL_IN_PROGRESS || comm->plan == NULL ? 0 : end(comm);
}
