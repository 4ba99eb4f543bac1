/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that all ranks register together. What NCCL's windows are made of (virtual memory with a descriptor) and what
 * cudaMalloc gives (an IPC handle) is mapped by every peer, which then writes there itself. Signals are not: NCCL makes them
 * without any handle, so their own rank adds to them. Host memory is only copied from. Anything else that cannot be mapped,
 * everywhere, is refused here, on all ranks alike, and not at the first put.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "carrier.h"
#include "say.h"
#include "wire.h"

enum { GRANULARITY = 2 << 20 }; /* all of virtual memory is a multiple of it */
enum kind { SIGNALS = 1, HOST, VIRTUAL, IPC, UNSHARED };

struct offer {
  uint32_t number, kind;
  uint64_t data, bytes;
  uint64_t offset;       /* of data in what is mapped */
  uint64_t mappedBytes;
  struct carrier_ipc ipc;
};

struct verdict {
  uint32_t number, taken;
  char why[CARRIER_WHY];
};

/* Is there virtual memory, of this allocation? */
static bool belongs(carrier_address at, uint64_t handle) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  uint64_t found;
  if (cuda->cuMemRetainAllocationHandle(&found, (void *)(uintptr_t)at) != 0) return false;
  cuda->cuMemRelease(found);
  return found == handle;
}

/* Where the allocation begins that data lies in; 0: who knows. NCCL's own memory lies in a reservation beside others, and what
 * CUDA calls the range may be the reservation. */
static carrier_address begin_of(carrier_address data, carrier_address range, uint64_t handle) {
  if (data == range || !belongs(data - 1, handle)) return data;
  return range != 0 && belongs(range, handle) ? range : 0;
}

static bool offer_virtual(struct offer *offer, carrier_address range, int *fd) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  uint64_t handle;
  if (cuda->cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)offer->data) != 0) return false;
  carrier_address begin = begin_of(offer->data, range, handle);
  if (begin != 0 && cuda->cuMemExportToShareableHandle(fd, handle, CARRIER_HANDLE_POSIX_FD, 0) == 0) offer->kind = VIRTUAL;
  offer->offset = offer->data - begin;
  offer->mappedBytes = (offer->offset + offer->bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
  cuda->cuMemRelease(handle);
  return true;
}

static void make_offer(struct offer *offer, int type, uint64_t flags, int *fd) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  carrier_address range = 0;
  size_t bytes = 0;
  /* In strict order NCCL asks for its signals, which have no handle, and 2.30 for windows with NCCL_WIN_STRICT_ORDERING, which have. */
  offer->kind = type == NCCL_PTR_HOST ? HOST : flags & NCCL_NET_MR_FLAG_FORCE_SO ? SIGNALS : UNSHARED;
  if (offer->kind == HOST) return;
  if (cuda->cuMemGetAddressRange_v2(&range, &bytes, offer->data) != 0) range = 0;
  if (offer_virtual(offer, range, fd)) return;
  offer->offset = offer->data - range;
  if (range != 0 && bytes - offer->offset >= offer->bytes && cuda->cuIpcGetMemHandle(&offer->ipc, offer->data) == 0) offer->kind = IPC;
}

static int map_virtual(struct carrier *c, struct carrier_part *part, const struct offer *offer, int fd) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  struct carrier_access access = {CARRIER_LOCATION_DEVICE, c->device, CARRIER_ACCESS_READ_WRITE};
  carrier_address at = 0;
  uint64_t handle;
  int result = cuda->cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd, CARRIER_HANDLE_POSIX_FD);
  if (result != 0) return result;
  if ((result = cuda->cuMemAddressReserve(&at, offer->mappedBytes, 0, 0, 0)) == 0) {
    if ((result = cuda->cuMemMap(at, offer->mappedBytes, 0, handle, 0)) == 0 &&
        (result = cuda->cuMemSetAccess(at, offer->mappedBytes, &access, 1)) != 0)
      cuda->cuMemUnmap(at, offer->mappedBytes);
    if (result != 0) cuda->cuMemAddressFree(at, offer->mappedBytes);
  }
  cuda->cuMemRelease(handle); /* the mapping keeps the memory */
  if (result != 0) return result;
  part->mapped = at;
  part->mappedBytes = offer->mappedBytes;
  part->at = at + offer->offset;
  return 0;
}

static int map_ipc(struct carrier_part *part, const struct offer *offer) {
  int result = carrier_driver(NULL)->cuIpcOpenMemHandle_v2(&part->mapped, offer->ipc, CARRIER_IPC_LAZY_PEER_ACCESS);
  if (result == 0) part->at = part->mapped + offer->offset;
  return result;
}

/* False: nobody can write there, and why is in the verdict. */
static bool take_offer(struct carrier *c, int rank, struct carrier_part *part, const struct offer *offer, int fd, struct verdict *verdict) {
  bool same = memcmp(c->peers[rank].process, c->peers[c->rank].process, sizeof c->peers[rank].process) == 0;
  int result = 0;
  part->bytes = offer->bytes;
  if (offer->number != verdict->number) {
    snprintf(verdict->why, sizeof verdict->why, "rank %d registers its memory %u where rank %d registers its %u", rank, offer->number,
             c->rank, verdict->number);
    return false;
  }
  if (offer->kind == UNSHARED) {
    snprintf(verdict->why, sizeof verdict->why, "rank %d's memory has no handle for other processes", rank);
    return false;
  }
  if (rank == c->rank || (same && offer->kind == IPC)) part->at = offer->data;
  else if (offer->kind == VIRTUAL) result = map_virtual(c, part, offer, fd);
  else if (offer->kind == IPC) result = map_ipc(part, offer);
  if (offer->kind == SIGNALS || offer->kind == HOST) part->at = rank == c->rank ? offer->data : 0;
  if (result != 0)
    snprintf(verdict->why, sizeof verdict->why, "rank %d cannot map rank %d's memory: %s", c->rank, rank, carrier_cuda_error(result));
  return result == 0;
}

/* False: a rank said nothing. */
static bool exchange_offers(struct carrier *c, struct carrier_region *region, const struct offer *own, int fd, struct verdict *verdict) {
  uint64_t deadline = wire_deadline();
  for (int r = 0; r < c->nRanks; r++) {
    if (r == c->rank || wire_send(c->peers[r].connection, own, sizeof *own, fd, deadline)) continue;
    carrier_warn("registering memory: rank %d: %s", r, wire_why());
    return false;
  }
  verdict->taken = 1;
  for (int r = 0; r < c->nRanks; r++) {
    struct offer offer = *own;
    int came = -1;
    if (r != c->rank && !wire_receive(c->peers[r].connection, &offer, sizeof offer, &came, deadline)) {
      carrier_warn("registering memory: rank %d: %s", r, wire_why());
      return false;
    }
    if (verdict->taken) verdict->taken = take_offer(c, r, &region->parts[r], &offer, came, verdict);
    if (came >= 0) close(came);
  }
  return true;
}

/* False: not all ranks have mapped it. Nobody puts before all have. */
static bool agree(struct carrier *c, const char *what, const struct verdict *own) {
  uint64_t deadline = wire_deadline();
  struct verdict other;
  bool all = own->taken;
  if (!all) carrier_warn("%s: %s", what, own->why);
  for (int r = 0; r < c->nRanks; r++)
    if (r != c->rank && !wire_send(c->peers[r].connection, own, sizeof *own, -1, deadline)) all = false;
  for (int r = 0; r < c->nRanks; r++) {
    if (r == c->rank) continue;
    if (!wire_receive(c->peers[r].connection, &other, sizeof other, NULL, deadline)) {
      carrier_warn("%s: rank %d: %s", what, r, wire_why());
      return false;
    }
    other.why[sizeof other.why - 1] = '\0';
    if (!other.taken && own->taken) carrier_warn("%s: %s", what, other.why); /* else it was said */
    all = all && other.taken;
  }
  return all;
}

bool carrier_agree(struct carrier *c, const char *what, const char *against) {
  struct verdict own = {.number = c->registered, .taken = against == NULL};
  if (against != NULL) snprintf(own.why, sizeof own.why, "%s", against);
  return agree(c, what, &own);
}

static void give_back(struct carrier *c, struct carrier_region *region) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  for (int r = 0; r < c->nRanks; r++) {
    struct carrier_part *part = &region->parts[r];
    if (part->mapped == 0) continue;
    if (part->mappedBytes == 0) {
      cuda->cuIpcCloseMemHandle(part->mapped);
      continue;
    }
    cuda->cuMemUnmap(part->mapped, part->mappedBytes);
    cuda->cuMemAddressFree(part->mapped, part->mappedBytes);
  }
}

int carrier_register(struct carrier *c, void *data, size_t bytes, int type, uint64_t flags, struct carrier_region **out) {
  struct offer own = {.number = c->registered++, .data = (uint64_t)(uintptr_t)data, .bytes = bytes};
  _Atomic(struct carrier_region *) *slot = &c->regions[own.number % CARRIER_MAX_REGIONS];
  struct carrier_region *region = calloc(1, sizeof *region + (size_t)c->nRanks * sizeof *region->parts);
  struct verdict verdict = {.number = own.number};
  struct carrier_entered entered;
  int fd = -1;
  if (region == NULL || atomic_load(slot) != NULL || !carrier_enter(&c->home, &entered)) {
    carrier_warn("registering memory: %s", region == NULL ? "no memory" : "too many registered at once, or no CUDA context");
    free(region);
    return ncclSystemError;
  }
  region->number = own.number;
  region->type = type;
  region->data = own.data;
  make_offer(&own, type, flags, &fd);
  bool all = exchange_offers(c, region, &own, fd, &verdict) && agree(c, "registering memory", &verdict);
  if (fd >= 0) close(fd);
  if (!all) give_back(c, region);
  carrier_leave(&entered);
  if (!all) {
    free(region);
    return ncclSystemError;
  }
  atomic_store(slot, region);
  *out = region;
  return ncclSuccess;
}

/* A handle of it may be in NCCL's thread just now, or on its way there from a kernel, and is to be found to be no more. */
static void bury(struct carrier *c, struct carrier_region *region) {
  struct carrier_region **place = &c->gone[c->numGone++ % CARRIER_GONE];
  free(*place);
  *place = region;
}

int carrier_deregister(struct carrier *c, struct carrier_region *region) {
  struct carrier_entered entered;
  if (atomic_exchange(&region->gone, true)) return ncclInvalidUsage;
  atomic_store(&c->regions[region->number % CARRIER_MAX_REGIONS], NULL);
  if (!carrier_forget(c, region, carrier_now_ns() + CARRIER_SETTLE_MS * UINT64_C(1000000))) {
    carrier_warn("rank %d: copies into memory that goes are not over within %d ms: its mapping stays", c->rank, CARRIER_SETTLE_MS);
    return ncclSystemError; /* it stays, too: NCCL's thread may have it */
  }
  if (carrier_enter(&c->home, &entered)) {
    give_back(c, region);
    carrier_leave(&entered);
  }
  pthread_mutex_lock(&c->lock);
  bury(c, region);
  pthread_mutex_unlock(&c->lock);
  return ncclSuccess;
}
