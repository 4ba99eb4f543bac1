/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>

int rank = -1, numRanks, quiet, playRma, playGdaki, oneGpu, deviceType = NCCL_NET_DEVICE_GIN_PROXY;
ncclNet_v11_t *net;
ncclGin_v11_t *gin;
ncclRma_v14_t *rma;
ncclGin_v14_t *gdaki;
struct shared *shared;
struct comm comm;
atomic_int warnings;
char lastWarning[512];

static struct { /* CUmemAllocationProp */
  int type, handles, locationType, locationId;
  void *none;
  unsigned char flags[8];
} prop = {.type = 1, .locationType = 1};

static int (*cuInit)(unsigned), (*cuDevicePrimaryCtxRetain)(void **, int), (*cuCtxSetCurrent)(void *), (*cuMemAlloc_v2)(uint64_t *, size_t);
static int (*cuMemCreate)(uint64_t *, size_t, void *, unsigned long long), (*cuMemAddressReserve)(uint64_t *, size_t, size_t, uint64_t, unsigned long long);
static int (*cuMemMap)(uint64_t, size_t, size_t, uint64_t, unsigned long long), (*cuMemSetAccess)(uint64_t, size_t, const void *, size_t);

static void *find(void *library, const char *name) {
  void *found = dlsym(library, name);
  CHECK(found != NULL, "%s", name);
  return found;
}

void meet(void) { meet_all(&shared->meeting, numRanks); }

__attribute__((format(printf, 5, 6))) static void log_line(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
  char text[512];
  va_list arguments;
  (void)flags;
  if (level != NCCL_LOG_WARN) return;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  memcpy(lastWarning, text, sizeof text);
  atomic_fetch_add(&warnings, 1);
  if (!quiet) fprintf(stderr, "rank %d: %s:%d %s\n", rank, file, line, text);
}

void *device_memory(size_t bytes, int handles) {
  static const struct { int type, id, flags; } access = {1, 0, 3};
  uint64_t at, handle, whole = (bytes + (2 << 20) - 1) & ~(uint64_t)((2 << 20) - 1);
  if (handles == 2) {
    CHECK(cuMemAlloc_v2(&at, bytes) == 0);
    return (void *)(uintptr_t)at;
  }
  prop.handles = handles;
  prop.locationId = rank;
  CHECK(cuMemCreate(&handle, whole, &prop, 0) == 0 && cuMemAddressReserve(&at, whole, 0, 0, 0) == 0 && cuMemMap(at, whole, 0, handle, 0) == 0 &&
        cuMemSetAccess(at, whole, &access, 1) == 0);
  return (void *)(uintptr_t)at;
}

void begin(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
  CHECK(driver != NULL, "%s", dlerror());
#define FIND(name) *(void **)&name = find(driver, #name)
  FIND(cuInit), FIND(cuDevicePrimaryCtxRetain), FIND(cuCtxSetCurrent), FIND(cuMemAlloc_v2), FIND(cuMemCreate), FIND(cuMemAddressReserve), FIND(cuMemMap);
  FIND(cuMemSetAccess);
  CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, oneGpu ? 0 : rank) == 0 && cuCtxSetCurrent(context) == 0);
  void *library = dlopen(getenv("CARRIER"), RTLD_NOW | RTLD_LOCAL);
  CHECK(library != NULL, "%s", dlerror());
  net = find(library, "ncclNetPlugin_v11");
  gin = find(library, "ncclGinPlugin_v11");
  if (playRma) rma = find(library, "ncclRmaPlugin_v14");
  if (playGdaki) gdaki = find(library, "ncclGinPlugin_v14");
}

/* ncclRmaInit, ncclGinInit with NCCL's proxy, which has passed on init to the table that RMA took, and the topology's question. */
static void initialise_rma(void) {
  ncclNetProperties_v12_t props;
  int devices = 0;
  CHECK(rma->init(&comm.rmaContext, 7, log_line) == 0 && rma->devices(&devices) == 0 && devices == 1);
  CHECK(rma->init(&comm.ginInstance, 7, log_line) == 0 && rma->devices(&devices) == 0 && devices == 1);
  CHECK(rma->getProperties(0, &props) == 0 && props.netDeviceType == NCCL_NET_DEVICE_GIN_PROXY && NCCL_NET_MAX_REQUESTS * props.maxRecvs == QUEUE);
  CHECK(props.railId == NCCL_NET_ID_UNDEF && props.planeId == NCCL_NET_ID_UNDEF && strstr(props.name, "development only") != NULL);
}

/* Of 2.32.3: ncclGinInit, then the topology's question. */
static void initialise_gdaki(void) {
  ncclGinProperties_v14_t can = {false, false};
  ncclNetProperties_v12_t props;
  int devices = 0;
  CHECK(gdaki->init(&comm.ginInstance, 7, log_line) == 0 && gdaki->devices(&devices) == 0 && devices == 1);
  CHECK(gdaki->getProperties(0, &props) == 0 && props.netDeviceType == NCCL_NET_DEVICE_GIN_GDAKI && strstr(props.name, "development only") != NULL);
  CHECK(gdaki->getGinProperties(&can) == 0 && can.supportsStrongSignals && can.supportsVASignals);
  comm.ginContext = comm.ginInstance;
}

/* ncclNetPluginInit, then the first lines of ncclGinConnectOnce. */
void initialise(void) {
  ncclNetProperties_v11_t props;
  void *netContext;
  int devices = 0;
  if (rma != NULL) {
    initialise_rma();
    return;
  }
  if (gdaki != NULL) {
    initialise_gdaki();
    return;
  }
  CHECK(net->init(&netContext, 7, NULL, log_line, NULL) == 0 && net->devices(&devices) == 0 && devices == 1);
  CHECK(net->getProperties(0, &props) == 0 && props.netDeviceType == NCCL_NET_DEVICE_HOST && strstr(props.name, "development only") != NULL);
  CHECK(gin->init(&comm.ginContext, 7, log_line) == 0 && gin->devices(&devices) == 0 && devices == 1);
  CHECK(gin->init(&comm.ginInstance, 7, log_line) == 0);
  CHECK(gin->getProperties(0, &props) == 0 && props.netDeviceType == deviceType && NCCL_NET_MAX_REQUESTS * props.maxRecvs == QUEUE);
}

void *another_instance(void) {
  void *instance;
  CHECK(gin->init(&instance, 8, log_line) == 0);
  return instance;
}

void *connect_one(void *instance, void *context) {
  void *handles[MAX_RANKS], *listener, *coll;
  CHECK(TABLE(listen)(instance, 0, shared->handles[rank], &listener) == 0);
  meet();
  for (int r = 0; r < numRanks; r++) handles[r] = shared->handles[r];
  CHECK(TABLE(connect)(context, handles, numRanks, rank, listener, &coll) == 0 && TABLE(closeListen)(listener) == 0);
  meet(); /* who is behind may still read the handles */
  return coll;
}

int try_register(void *coll, void *at, size_t bytes, int type, uint64_t flags, void **region) {
  void *same;
  if (rma != NULL) return rma->regMrSym(coll, at, bytes, type, flags, region);
  int result = gin->regMrSym(coll, at, bytes, type, flags, region, &same);
  CHECK(*region == same);
  return result;
}

void *register_memory(void *coll, void *at, size_t bytes, int type, uint64_t flags) {
  void *region;
  CHECK(try_register(coll, at, bytes, type, flags, &region) == 0);
  return region;
}

/* As ncclGinProxyCreateContext: signals of all contexts, then of each what it puts by value. */
static void connect_all_rma(void) {
  const size_t signals = CONTEXTS * SIGNALS * sizeof(uint64_t);
  void *coll = connect_one(comm.ginInstance, comm.ginInstance);
  CHECK(rma->createContext(coll, &(ncclRmaConfig_v14_t){CONTEXTS, -1, 1}, &comm.contexts) == 0);
  uint64_t *at = device_memory(signals, 0);
  void *region = register_memory(coll, at, signals, NCCL_PTR_CUDA, NCCL_NET_MR_FLAG_FORCE_SO | NCCL_NET_MR_FLAG_SIGNAL_NEVER_RESET);
  for (int c = 0; c < CONTEXTS; c++) {
    comm.colls[c] = coll;
    comm.signals[c] = at + c * SIGNALS;
    comm.signalRegions[c] = region;
    comm.inlines[c] = calloc(MAX_RANKS * QUEUE, sizeof(uint64_t));
    comm.inlineRegions[c] = register_memory(coll, comm.inlines[c], MAX_RANKS * QUEUE * sizeof(uint64_t), NCCL_PTR_HOST, 0);
  }
}

void connect_all(void) {
  if (rma != NULL) {
    connect_all_rma();
    return;
  }
  for (int c = 0; c < CONTEXTS; c++) {
    comm.colls[c] = connect_one(comm.ginInstance, comm.ginContext);
    comm.signals[c] = device_memory(SIGNALS * sizeof(uint64_t), 0);
    comm.signalRegions[c] = register_memory(comm.colls[c], comm.signals[c], SIGNALS * sizeof(uint64_t), NCCL_PTR_CUDA, NCCL_NET_MR_FLAG_FORCE_SO);
    comm.inlines[c] = calloc(MAX_RANKS * QUEUE, sizeof(uint64_t));
    comm.inlineRegions[c] = register_memory(comm.colls[c], comm.inlines[c], MAX_RANKS * QUEUE * sizeof(uint64_t), NCCL_PTR_HOST, 0);
  }
}

void register_window(struct window *window, int type, uint64_t flags) {
  for (int c = 0; c < CONTEXTS; c++)
    window->regions[c] = c > 0 && rma != NULL ? window->regions[0] : register_memory(comm.colls[c], window->at, window->bytes, type, flags);
}

void deregister_window(struct window *window) {
  for (int c = 0; c < (rma != NULL ? 1 : CONTEXTS); c++) CHECK(TABLE(deregMrSym)(comm.colls[c], window->regions[c]) == 0);
}

int post_put(int context, uint64_t from, void *source, size_t bytes, uint64_t to, void *dest, int target, void **request) {
  if (rma != NULL) return rma->iput(comm.contexts, context, from, source, bytes, to, dest, (uint32_t)target, request);
  return gin->iput(comm.colls[context], from, source, bytes, to, dest, (uint32_t)target, request);
}

int post_signal(int context, uint64_t from, void *source, size_t bytes, uint64_t to, void *dest, int target, uint64_t signalAt, void *signals,
                uint64_t value, uint32_t op, void **request) {
  if (rma == NULL)
    return gin->iputSignal(comm.colls[context], from, source, bytes, to, dest, (uint32_t)target, signalAt, signals, value, op, request);
  if (signals != NULL && signals == comm.signalRegions[context]) signalAt += (uint64_t)context * SIGNALS * sizeof(uint64_t);
  return rma->iputSignal(comm.contexts, context, from, source, bytes, to, dest, (uint32_t)target, signalAt, signals, value, op, true, request);
}

int poll_request(int context, void *request, int *done) { return TABLE(test)(comm.colls[context], request, done); }
int progress(int context) { return rma != NULL ? rma->rmaProgress(comm.contexts) : gin->ginProgress(comm.colls[context]); }

/* As ncclGinFinalize: the proxy thread is over. Version 14: the device communicator goes before the connection. */
void finish(void) {
  if (rma != NULL) CHECK(rma->destroyContext(comm.contexts) == 0);
  for (int c = 0; c < CONTEXTS; c++) {
    if (c == 0 || rma == NULL) CHECK(TABLE(deregMrSym)(comm.colls[c], comm.signalRegions[c]) == 0);
    free(comm.inlines[c]);
    CHECK(TABLE(deregMrSym)(comm.colls[c], comm.inlineRegions[c]) == 0);
    if (c == CONTEXTS - 1 || rma == NULL) CHECK(TABLE(closeColl)(comm.colls[c]) == 0);
  }
  CHECK(TABLE(finalize)(comm.ginInstance) == 0 && TABLE(finalize)(rma != NULL ? comm.rmaContext : comm.ginContext) == 0);
  if (rma == NULL) CHECK(net->finalize(NULL) == 0);
}

void write_faults(const char *lines) {
  const char *path = getenv("DYNAMICCL_CARRIER_FAULTS");
  char whole[4096];
  meet();
  if (rank == 0 && lines == NULL) CHECK(unlink(path) == 0);
  if (rank == 0 && lines != NULL) {
    snprintf(whole, sizeof whole, "%s.new", path);
    FILE *file = fopen(whole, "w");
    CHECK(file != NULL && fputs(lines, file) >= 0 && fclose(file) == 0 && rename(whole, path) == 0);
  }
  meet();
}

void die(void) {
  atomic_store(&shared->died, 1);
  kill(getpid(), SIGKILL);
}

void play(const char *name, int ranks, int dies, void (*story)(void)) {
  pid_t children[MAX_RANKS];
  numRanks = ranks;
  if (shared == NULL) shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  memset(shared, 0, sizeof *shared);
  fflush(NULL);
  for (rank = 0; rank < ranks; rank++) {
    children[rank] = fork();
    if (children[rank] > 0) continue;
    alarm(400);
    begin();
    story();
    _exit(0);
  }
  rank = -1;
  int failures = 0;
  for (int left = ranks; left > 0; left--) {
    int status, r = 0;
    pid_t child = wait(&status);
    while (r < ranks && children[r] != child) r++;
    int good = r == dies ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0;
    if (!good) fprintf(stderr, "%s: rank %d: status %x\n", name, r, status);
    children[r] = 0;
    if (!good && failures++ == 0)
      for (int o = 0; o < ranks; o++) /* who failed said why; the others would wait */
        if (children[o] > 0) kill(children[o], SIGTERM);
  }
  CHECK(failures == 0, "%s, %d ranks", name, ranks);
}
