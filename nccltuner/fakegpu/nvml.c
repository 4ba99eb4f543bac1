/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for NVML, of what plugin/transport_node.c asks: FAKEGPU_GPUS GPUs (8) that NVLink joins, or what FAKEGPU_LINKS says:
 *   nvlink   every pair (the default)
 *   pcie     no pair
 *   bridges  GPUs 0 and 1, 2 and 3, ...
 */
#include <stdlib.h>
#include <string.h>

#include "fakegpu.h"

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NVLINK = 2, STATUS_OK = 0, STATUS_NOT_SUPPORTED = 5 };
typedef struct gpu { int index; } *nvmlDevice_t;

static struct gpu all[64];

static int gpus(void) {
  const char *text = getenv("FAKEGPU_GPUS");
  return text == NULL ? 8 : atoi(text);
}

static int joins(int a, int b) {
  const char *links = getenv("FAKEGPU_LINKS");
  if (links == NULL || strcmp(links, "nvlink") == 0) return 1;
  return strcmp(links, "bridges") == 0 && a / 2 == b / 2;
}

FAKEGPU_API int nvmlDeviceGetCount_v2(unsigned *count) { return *count = (unsigned)gpus(), SUCCESS; }

FAKEGPU_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
  if (index >= (unsigned)gpus() || index >= sizeof all / sizeof *all) return INVALID_ARGUMENT;
  all[index].index = (int)index;
  *device = &all[index];
  return SUCCESS;
}

FAKEGPU_API int nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, int cap, int *status) {
  *status = cap != NVLINK || joins(a->index, b->index) ? STATUS_OK : STATUS_NOT_SUPPORTED;
  return SUCCESS;
}

FAKEGPU_API int nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, int *active) {
  if (link >= 18) return INVALID_ARGUMENT;
  *active = gpus() > 1 && joins(device->index, device->index ^ 1);
  return SUCCESS;
}
