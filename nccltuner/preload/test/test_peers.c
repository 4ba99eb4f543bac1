/* SPDX-License-Identifier: Apache-2.0
 *
 * Where peers' windows lie, as two NCCLs tell it, and when nothing is to be known of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../kernels/host/driver.h"
#include "../forward.h"
#include "../peers.h"

#define CHECK(cond) \
  do { \
    if (!(cond)) { \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
      exit(1); \
    } \
  } while (0)
#define RANKS 3
#define GIB4 (UINT64_C(1) << 32)
#define MEMORY UINT64_C(0x7000000000) /* 1000 bytes of this rank */
#define FLAT UINT64_C(0x500000000000)
#define BEFORE 128

static int version, teamRanks = RANKS;
static bool old, onGpu = true, copies = true;
static struct { /* ncclWindow_vidmem of 2.28 */
  void *winHost;
  char *lsaFlatBase;
  int lsaRank, worldRank;
  uint32_t stride4G, mcOffset4K;
} window;

static int tell(void *handle, size_t offset, int lsaRank, void **out) {
  CHECK(handle == &window && offset == 0);
  *out = (void *)(uintptr_t)(FLAT + BEFORE + (uint64_t)lsaRank * GIB4 * 2);
  return lsaRank < teamRanks ? 0 : 4;
}
static int tell_version(int *out) {
  *out = version;
  return 0;
}
void *dyn_find_behind(const char *name) {
  if (strcmp(name, "ncclGetVersion") == 0) return version == 0 ? NULL : (void *)tell_version;
  return old ? NULL : (void *)tell;
}

static int range(dyn_gpu_address *base, size_t *bytes, dyn_gpu_address at) {
  *base = MEMORY, *bytes = 1000;
  return at >= MEMORY && at < MEMORY + 1000 ? 0 : 1;
}
static int attribute(void *value, int which, dyn_gpu_address at) {
  CHECK(which == 9 && at == (uintptr_t)&window);
  *(int *)value = 0;
  return onGpu ? 0 : 1;
}
static int streams, turns; /* that are; that have had work */
static int copy(void *to, dyn_gpu_address from, size_t bytes, void *stream) {
  CHECK(stream == &window && bytes <= sizeof window);
  turns++;
  memcpy(to, (void *)(uintptr_t)from, bytes);
  return copies ? 0 : 1;
}
static int create(void **stream, unsigned flags) {
  streams++;
  *stream = &window;
  return flags == DYN_STREAM_NON_BLOCKING ? 0 : 1;
}
static int destroy(void *stream) {
  (void)stream;
  return --streams;
}
static int synchronize(void *stream) { return stream == &window ? 0 : 1; }
static int mode = 7; /* of this thread's captures */
static int exchange(int *other) {
  int was = mode;
  mode = *other, *other = was;
  return 0;
}
const struct dyn_host_driver *dyn_host_driver(void) {
  static const struct dyn_host_driver driver = {.cuMemGetAddressRange_v2 = range, .cuPointerGetAttribute = attribute, .cuMemcpyDtoHAsync_v2 = copy,
                                                .cuStreamCreate = create, .cuStreamDestroy_v2 = destroy, .cuStreamSynchronize = synchronize,
                                                .cuThreadExchangeStreamCaptureMode = exchange};
  return &driver;
}

static struct dyn_peers peers;
static bool known_of(uint64_t bytes) {
  bool known = dyn_peers_of(&window, (void *)(uintptr_t)(MEMORY + BEFORE), bytes, RANKS, 1, &peers);
  CHECK(streams == 0 && mode == 7);
  return known;
}
static bool known(void) { return known_of(1000 - BEFORE); }

/* Bases are of the memory, and not of the window. */
static void told(void) {
  CHECK(known() && peers.before == BEFORE && peers.reach == 1000);
  for (int r = 0; r < RANKS; r++) CHECK((uintptr_t)peers.base[r] == FLAT + (uint64_t)r * GIB4 * 2);
}

int main(void) {
  version = 22900;
  told();
  teamRanks = 2;
  CHECK(!known()); /* not all ranks are in the team */
  teamRanks = RANKS;
  CHECK(!known_of(1001 - BEFORE)); /* more memory than one piece */
  old = true;
  CHECK(!known());
  version = 22809;
  window.winHost = &window, window.lsaFlatBase = (char *)(uintptr_t)(FLAT + BEFORE), window.lsaRank = window.worldRank = 1, window.stride4G = 2;
  told();
  window.lsaRank = 0;
  CHECK(!known()); /* a team of fewer */
  window.lsaRank = 1, window.worldRank = 3;
  CHECK(!known());
  window.worldRank = 1, onGpu = false;
  CHECK(!known()); /* a pointer of NCCL's own */
  onGpu = true, copies = false;
  CHECK(!known());
  copies = true, turns = 0;
  told();
  CHECK(turns == 2); /* so that the program's streams keep their sides */
  version = 22703;
  CHECK(!known()); /* windows were something else */
  version = 0;
  CHECK(!known());
  return 0;
}
