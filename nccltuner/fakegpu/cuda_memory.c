/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory. What is not small lies in a file without a name, so that other processes can map it: an IPC handle says which
 * process has it open where, and which file it must be.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda_stream.h"

static const size_t leastShared = 64u << 10;

struct handle {
  char magic[8];
  int32_t pid, fd;
  uint64_t device, inode, bytes; /* of the file: another process's with the same numbers is another file */
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "a handle has 64 bytes");
static const char magic[8] = "fakegpu";

struct memory {
  struct memory *next;
  enum { OWN, PINNED, OPENED } kind;
  char *at;
  size_t bytes;
  int ordinal, fd;      /* -1: not this process's file */
  CUcontext context;
  struct handle handle; /* of 0 bytes: in no file */
  unsigned opened;      /* how often */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory *all;

/* Under the lock: where an address lies; the place is NULL if nowhere. */
static struct memory **find(uintptr_t address) {
  struct memory **place = &all;
  while (*place != NULL && (address < (uintptr_t)(*place)->at || address - (uintptr_t)(*place)->at >= (*place)->bytes))
    place = &(*place)->next;
  return place;
}

/* Under the lock: takes out what begins there. */
static struct memory *take(uintptr_t address, int kind) {
  struct memory **place = find(address), *memory = *place;
  if (memory == NULL || (uintptr_t)memory->at != address || (int)memory->kind != kind) return NULL;
  *place = memory->next;
  return memory;
}

static void add(struct memory *memory) {
  memory->context = fakegpu_current();
  memory->ordinal = memory->context == NULL ? 0 : memory->context->device;
  pthread_mutex_lock(&lock);
  memory->next = all;
  all = memory;
  pthread_mutex_unlock(&lock);
}

static void destroy(struct memory *memory) {
  if (memory->kind != PINNED && memory->handle.bytes == 0) free(memory->at);
  else munmap(memory->at, memory->bytes);
  if (memory->fd >= 0) close(memory->fd);
  free(memory);
}

static int identify(int fd, struct handle *handle) {
  struct stat s;
  if (fstat(fd, &s) != 0) return -1;
  *handle = (struct handle){.pid = getpid(), .fd = fd, .device = s.st_dev, .inode = s.st_ino, .bytes = (uint64_t)s.st_size};
  memcpy(handle->magic, magic, sizeof magic);
  return 0;
}

/* Maps all of it, for the child of a fork as well, as the driver may: who writes there by mistake is found out. NULL: it cannot. */
static void *map(int fd, size_t bytes) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? NULL : at;
}

static void map_new(struct memory *memory) {
  memory->fd = memfd_create("fakegpu", MFD_CLOEXEC);
  if (memory->fd < 0) return;
  if (ftruncate(memory->fd, (off_t)memory->bytes) == 0 && identify(memory->fd, &memory->handle) == 0)
    memory->at = map(memory->fd, memory->bytes);
  if (memory->at == NULL) close(memory->fd);
}

static CUresult allocate(struct memory **out, size_t bytes, int kind) {
  struct memory *memory = calloc(1, sizeof *memory);
  if (memory == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  memory->kind = (unsigned)kind;
  memory->bytes = bytes;
  memory->fd = -1;
  if (kind == OWN && bytes >= leastShared) map_new(memory);
  else if (kind == PINNED) memory->at = map(-1, bytes); /* who touches it when it is gone is told */
  else memory->at = calloc(1, bytes);
  if (memory->at == NULL) {
    free(memory);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  add(memory);
  *out = memory;
  return 0;
}

FAKEGPU_API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  struct memory *memory;
  *address = 0;
  CUresult result = bytes == 0 ? CUDA_ERROR_INVALID_VALUE : allocate(&memory, bytes, OWN);
  if (result == 0) *address = (CUdeviceptr)(uintptr_t)memory->at;
  return result;
}

FAKEGPU_API CUresult cuMemAllocHost_v2(void **address, size_t bytes) {
  struct memory *memory;
  *address = NULL;
  CUresult result = allocate(&memory, bytes, PINNED);
  if (result == 0) *address = memory->at;
  return result;
}

/* Nothing that was launched before may still need it. */
static CUresult free_of(uintptr_t address, int kind) {
  pthread_mutex_lock(&lock);
  struct memory *memory = take(address, kind);
  pthread_mutex_unlock(&lock);
  if (memory == NULL) return CUDA_ERROR_INVALID_VALUE;
  lock_keep(memory->context);
  CUresult result = stream_wait(NULL);
  queue_wait_context(memory->context);
  lock_give(memory->context);
  destroy(memory);
  return result;
}

FAKEGPU_API CUresult cuMemFree_v2(CUdeviceptr address) { return address == 0 ? 0 : free_of((uintptr_t)address, OWN); }
FAKEGPU_API CUresult cuMemFreeHost(void *address) { return free_of((uintptr_t)address, PINNED); }

/* What belongs to a context goes with it; of memory alone what the host touches. Its addresses stay taken, as the driver keeps them: who
 * touches them dies, and they are not seen to be free. */
void memory_reset(CUcontext context) {
  struct memory *gone = NULL;
  pthread_mutex_lock(&lock);
  for (struct memory **at = &all, *memory; (memory = *at) != NULL;) {
    if (memory->kind != PINNED || memory->context != context) {
      at = &memory->next;
      continue;
    }
    *at = memory->next;
    memory->next = gone;
    gone = memory;
  }
  pthread_mutex_unlock(&lock);
  for (struct memory *memory = gone, *next; memory != NULL; memory = next) {
    next = memory->next;
    mmap(memory->at, memory->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    free(memory);
  }
}

FAKEGPU_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
  CUresult result = stream_wait(NULL);
  if (result == 0) memcpy((void *)(uintptr_t)to, from, bytes);
  return result;
}

FAKEGPU_API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
  CUresult result = stream_wait(NULL);
  if (result == 0) memcpy(to, (void *)(uintptr_t)from, bytes);
  return result;
}

/* Pages of shared memory that are given back are zero when they are touched, which most of what is filled so never is. */
void memory_fill(void *memory, int value, size_t bytes) {
  const uintptr_t page = (uintptr_t)getpagesize(); /* the kernel would round up to it */
  char *at = memory, *end = at + bytes;
  char *first = (char *)(((uintptr_t)at + page - 1) & -page), *last = (char *)((uintptr_t)end & -page);
  if (value == 0 && bytes >= 16 * page && madvise(first, (size_t)(last - first), MADV_REMOVE) == 0) {
    memset(at, 0, (size_t)(first - at));
    at = last;
  }
  memset(at, value, (size_t)(end - at));
}

FAKEGPU_API CUresult cuMemsetD8_v2(CUdeviceptr at, unsigned char value, size_t bytes) {
  CUresult result = stream_wait(NULL);
  if (result == 0) memory_fill((void *)(uintptr_t)at, value, bytes);
  return result;
}

FAKEGPU_API CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr address) {
  if (value == NULL || attribute != CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  struct memory *memory = *find((uintptr_t)address);
  if (memory != NULL) *(int *)value = memory->ordinal;
  pthread_mutex_unlock(&lock);
  return memory == NULL ? CUDA_ERROR_INVALID_VALUE : 0;
}

int memory_range(CUdeviceptr *base, size_t *bytes, uintptr_t address) {
  pthread_mutex_lock(&lock);
  struct memory *memory = *find(address);
  if (memory != NULL) *base = (CUdeviceptr)(uintptr_t)memory->at, *bytes = memory->bytes;
  pthread_mutex_unlock(&lock);
  return memory != NULL;
}

/* Also of an address within: the handle is of all of the memory. */
FAKEGPU_API CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
  if (handle == NULL) return CUDA_ERROR_INVALID_VALUE;
  memset(handle, 0, sizeof *handle);
  pthread_mutex_lock(&lock);
  struct memory *memory = *find((uintptr_t)address);
  int shared = memory != NULL && memory->kind == OWN && memory->handle.bytes > 0;
  if (shared) memcpy(handle, &memory->handle, sizeof memory->handle);
  pthread_mutex_unlock(&lock);
  return shared ? 0 : CUDA_ERROR_INVALID_VALUE;
}

static int same_file(const struct handle *a, const struct handle *b) {
  return a->bytes > 0 && a->device == b->device && a->inode == b->inode && a->bytes == b->bytes;
}

/* Under the lock: of this context if it was opened there, or this process's own. */
static struct memory *known(const struct handle *handle, CUcontext context) {
  struct memory *memory = all;
  while (memory != NULL &&
         (!same_file(&memory->handle, handle) || (memory->kind == OPENED && memory->context != context)))
    memory = memory->next;
  return memory;
}

/* NULL: the process or its memory is gone, or nobody may look into it. */
static struct memory *open_new(const struct handle *handle) {
  struct memory *memory = calloc(1, sizeof *memory);
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)handle->pid, (int)handle->fd);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (memory != NULL && fd >= 0 && identify(fd, &memory->handle) == 0 && same_file(&memory->handle, handle))
    memory->at = map(fd, handle->bytes);
  if (fd >= 0) close(fd);
  if (memory == NULL || memory->at == NULL) {
    free(memory);
    return NULL;
  }
  memory->kind = OPENED;
  memory->bytes = handle->bytes;
  memory->fd = -1;
  memory->opened = 1;
  return memory;
}

FAKEGPU_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle ipc, unsigned flags) {
  const char *fault = getenv("FAKEGPU_IPC");
  struct handle handle;
  memcpy(&handle, &ipc, sizeof handle);
  if (address == NULL || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || memcmp(handle.magic, magic, sizeof magic) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (fakegpu_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (fault != NULL && strcmp(fault, "refuse") == 0) return CUDA_ERROR_MAP_FAILED;
  pthread_mutex_lock(&lock);
  struct memory *memory = known(&handle, fakegpu_current());
  int own = memory != NULL && memory->kind == OWN;
  if (memory != NULL && !own) memory->opened++;
  pthread_mutex_unlock(&lock);
  if (own) return CUDA_ERROR_INVALID_CONTEXT; /* as CUDA: a process has its own memory already */
  if (memory == NULL && (memory = open_new(&handle)) != NULL) add(memory);
  if (memory == NULL) return CUDA_ERROR_MAP_FAILED;
  *address = (CUdeviceptr)(uintptr_t)memory->at;
  return 0;
}

FAKEGPU_API CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  pthread_mutex_lock(&lock);
  struct memory **place = find((uintptr_t)address), *memory = *place;
  int opened = memory != NULL && memory->kind == OPENED && (CUdeviceptr)(uintptr_t)memory->at == address;
  int others = opened && --memory->opened > 0;
  pthread_mutex_unlock(&lock);
  if (!opened) return CUDA_ERROR_INVALID_VALUE;
  return others ? 0 : free_of((uintptr_t)address, OPENED);
}
