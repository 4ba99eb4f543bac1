/* SPDX-License-Identifier: Apache-2.0
 *
 * Virtual memory: allocations without address, mapped where the program reserved room, and shared by descriptors. An
 * allocation is a file without a name; its descriptor is what others import.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda_stream.h"

enum { GRANULARITY = 2 << 20, POSIX_FD = 1 };

struct allocation {
  int fd, sharable;
  size_t bytes;
  unsigned references; /* handles and mappings */
};

struct mapping {
  struct mapping *next;
  uintptr_t at;
  size_t bytes;
  struct allocation *allocation;
};

typedef struct { /* CUmemAllocationProp */
  int type, requestedHandleTypes;
  int locationType, locationId;
  void *win32HandleMetaData;
  unsigned char compressionType, gpuDirectRDMACapable;
  unsigned short usage;
  unsigned char reserved[4];
} CUmemAllocationProp;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping *all;

/* Under the lock. */
static struct mapping **find(uintptr_t address) {
  struct mapping **place = &all;
  while (*place != NULL && (address < (*place)->at || address - (*place)->at >= (*place)->bytes)) place = &(*place)->next;
  return place;
}

/* Under the lock. */
static void drop(struct allocation *a) {
  if (--a->references > 0) return;
  close(a->fd);
  free(a);
}

static CUresult wrap(unsigned long long *handle, int fd, size_t bytes, int sharable) {
  struct allocation *a = fd < 0 ? NULL : calloc(1, sizeof *a);
  if (a == NULL) {
    if (fd >= 0) close(fd);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *a = (struct allocation){fd, sharable, bytes, 1};
  *handle = (unsigned long long)(uintptr_t)a;
  return 0;
}

FAKEGPU_API CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop, int option) {
  (void)prop, (void)option;
  *granularity = GRANULARITY;
  return 0;
}

FAKEGPU_API CUresult cuMemCreate(unsigned long long *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags) {
  if (handle == NULL || prop == NULL || bytes == 0 || bytes % GRANULARITY != 0 || flags != 0 || prop->type != 1)
    return CUDA_ERROR_INVALID_VALUE;
  int fd = memfd_create("fakegpu", MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, (off_t)bytes) != 0) {
    close(fd);
    fd = -1;
  }
  return wrap(handle, fd, bytes, prop->requestedHandleTypes & POSIX_FD);
}

FAKEGPU_API CUresult cuMemRelease(unsigned long long handle) {
  if (handle == 0) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  drop((struct allocation *)(uintptr_t)handle);
  pthread_mutex_unlock(&lock);
  return 0;
}

FAKEGPU_API CUresult cuMemRetainAllocationHandle(unsigned long long *handle, void *address) {
  pthread_mutex_lock(&lock);
  struct mapping *m = *find((uintptr_t)address);
  if (m != NULL) {
    m->allocation->references++;
    *handle = (unsigned long long)(uintptr_t)m->allocation;
  }
  pthread_mutex_unlock(&lock);
  return m == NULL ? CUDA_ERROR_INVALID_VALUE : 0;
}

FAKEGPU_API CUresult cuMemExportToShareableHandle(void *shareable, unsigned long long handle, int type, unsigned long long flags) {
  struct allocation *a = (struct allocation *)(uintptr_t)handle;
  if (a == NULL || !a->sharable || type != POSIX_FD || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  int fd = fcntl(a->fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *(int *)shareable = fd;
  return 0;
}

FAKEGPU_API CUresult cuMemImportFromShareableHandle(unsigned long long *handle, void *shareable, int type) {
  struct stat s;
  int fd = (int)(intptr_t)shareable;
  if (type != POSIX_FD || fstat(fd, &s) != 0 || s.st_size == 0) return CUDA_ERROR_INVALID_VALUE;
  return wrap(handle, fcntl(fd, F_DUPFD_CLOEXEC, 0), (size_t)s.st_size, 1);
}

FAKEGPU_API CUresult cuMemAddressReserve(CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr where, unsigned long long flags) {
  (void)alignment, (void)where;
  if (bytes == 0 || bytes % GRANULARITY != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  void *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *at = (CUdeviceptr)(uintptr_t)room;
  return 0;
}

FAKEGPU_API CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes) {
  return munmap((void *)(uintptr_t)at, bytes) == 0 ? 0 : CUDA_ERROR_INVALID_VALUE;
}

/* Nobody may look into it before cuMemSetAccess. */
FAKEGPU_API CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags) {
  struct allocation *a = (struct allocation *)(uintptr_t)handle;
  if (a == NULL || offset != 0 || flags != 0 || bytes == 0 || bytes > a->bytes || bytes % GRANULARITY != 0) return CUDA_ERROR_INVALID_VALUE;
  struct mapping *m = calloc(1, sizeof *m);
  if (m == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  if (mmap((void *)(uintptr_t)at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, a->fd, 0) == MAP_FAILED) {
    free(m);
    return CUDA_ERROR_MAP_FAILED;
  }
  pthread_mutex_lock(&lock);
  a->references++;
  *m = (struct mapping){all, (uintptr_t)at, bytes, a};
  all = m;
  pthread_mutex_unlock(&lock);
  return 0;
}

FAKEGPU_API CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const void *access, size_t count) {
  return access != NULL && count == 1 && mprotect((void *)(uintptr_t)at, bytes, PROT_READ | PROT_WRITE) == 0 ? 0 : CUDA_ERROR_INVALID_VALUE;
}

FAKEGPU_API CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
  pthread_mutex_lock(&lock);
  struct mapping **place = find((uintptr_t)at), *m = *place;
  int whole = m != NULL && m->at == (uintptr_t)at && m->bytes == bytes;
  if (whole) {
    *place = m->next;
    drop(m->allocation);
    free(m);
  }
  pthread_mutex_unlock(&lock);
  if (!whole) return CUDA_ERROR_INVALID_VALUE;
  mmap((void *)(uintptr_t)at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  return 0;
}

/* Who does not want to know one of them gives NULL. */
FAKEGPU_API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
  CUdeviceptr begin;
  size_t length;
  pthread_mutex_lock(&lock);
  struct mapping *m = *find((uintptr_t)address);
  if (m != NULL) begin = m->at, length = m->bytes;
  pthread_mutex_unlock(&lock);
  if (m == NULL && !memory_range(&begin, &length, (uintptr_t)address)) return CUDA_ERROR_NOT_FOUND;
  if (base != NULL) *base = begin;
  if (bytes != NULL) *bytes = length;
  return 0;
}
