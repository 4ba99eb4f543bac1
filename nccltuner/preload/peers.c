/* SPDX-License-Identifier: Apache-2.0
 *
 * From 2.29 on NCCL tells (ncclGetLsaDevicePointer). 2.28 keeps it in the GPU's memory, where the handle points, for device
 * code alone (nccl_device/impl/core__types.h). Peers must be the ranks of the communicator, all of them and in their order:
 * NCCL's LSA team, in which this rank has its number, and which has a last one.
 */
#include "peers.h"

#include <string.h>

#include "../../kernels/host/driver.h"
#include "../../kernels/host/turns.h"
#include "forward.h"

enum { SUCCESS = 0, VERSION_2_28 = 22800, VERSION_2_29 = 22900, DEVICE_ORDINAL = 9 /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */ };

/* The first fields of ncclWindow_vidmem, the same in 2.28.3 to 2.28.9. */
struct window_in_memory {
  void *winHost;
  char *lsaFlatBase; /* of rank 0 of the team */
  int lsaRank, worldRank;
  uint32_t stride4G; /* from one rank to the next */
};

static bool ask(int (*tell)(void *, size_t, int, void **), void *window, uint32_t nRanks, struct dyn_peers *peers) {
  bool all = true;
  for (uint32_t r = 0; r < nRanks && all; r++) all = tell(window, 0, (int)r, (void **)&peers->base[r]) == SUCCESS && peers->base[r] != NULL;
  return all;
}

struct copy { uint64_t from; void *to; size_t bytes; };
static bool put_copy(void *of, void *stream) {
  const struct copy *copy = of;
  return dyn_host_driver()->cuMemcpyDtoHAsync_v2(copy->to, copy->from, copy->bytes, stream) == 0;
}

static bool copy_from(uint64_t at, void *to, size_t bytes) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  int ordinal, mode = DYN_RELAXED_CAPTURE;
  if (driver->cuPointerGetAttribute(&ordinal, DEVICE_ORDINAL, at) != 0) return false; /* without symmetric memory NCCL gives a pointer of its own */
  bool relaxed = driver->cuThreadExchangeStreamCaptureMode(&mode) == 0, copied = dyn_do_on_streams(put_copy, &(struct copy){at, to, bytes});
  if (relaxed) driver->cuThreadExchangeStreamCaptureMode(&mode);
  return copied;
}

static bool look(void *window, uint32_t nRanks, uint32_t rank, struct dyn_peers *peers) {
  struct window_in_memory w = {0};
  if (!copy_from((uintptr_t)window, &w, sizeof w)) return false;
  if (w.winHost == NULL || w.lsaFlatBase == NULL || w.stride4G == 0 || (uint32_t)w.lsaRank != rank || (uint32_t)w.worldRank != rank) return false;
  for (uint32_t r = 0; r < nRanks; r++) peers->base[r] = w.lsaFlatBase + ((uint64_t)r * w.stride4G << 32);
  return true;
}

bool dyn_peers_of(void *window, const void *at, uint64_t bytes, uint32_t nRanks, uint32_t rank, struct dyn_peers *peers) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  int (*tell)(void *, size_t, int, void **) = (int (*)(void *, size_t, int, void **))dyn_find_behind("ncclGetLsaDevicePointer");
  int (*tell_version)(int *) = (int (*)(int *))dyn_find_behind("ncclGetVersion"), version = 0;
  dyn_gpu_address memory = 0;
  size_t size = 0;
  memset(peers, 0, sizeof *peers);
  if (driver == NULL || window == NULL || driver->cuMemGetAddressRange_v2(&memory, &size, (uintptr_t)at) != 0) return false;
  peers->before = (uintptr_t)at - memory;
  peers->reach = size;
  if (bytes > size - peers->before) return false; /* of several pieces of memory, of which each rank may have others */
  if (tell_version == NULL || tell_version(&version) != SUCCESS || version < VERSION_2_28) return false;
  bool known = version < VERSION_2_29 ? look(window, nRanks, rank, peers) : tell != NULL && ask(tell, window, nRanks, peers);
  for (uint32_t r = 0; r < nRanks && known; r++) peers->base[r] -= peers->before;
  return known;
}
