/* SPDX-License-Identifier: Apache-2.0
 *
 * Of test_gin: CUDA refuses memory, an event, or a stream, in the middle of making: what was made before is given back. Included by it.
 */
#ifndef DYN_GIN_MEMORY_H
#define DYN_GIN_MEMORY_H

static struct dyn_host_driver real; /* the driver's own */
static int refuses, asked;          /* the n-th call; 0: none. How many there were */
static int held[4];                 /* memory of the GPU, of the host, events, streams */

static bool refused(void) { return ++asked == refuses; }
static int keep_in(int kind, int result) {
  held[kind] += result == 0;
  return result;
}
static int alloc(dyn_gpu_address *memory, size_t bytes) { return refused() ? 2 : keep_in(0, real.cuMemAlloc_v2(memory, bytes)); }
static int alloc_host(void **memory, size_t bytes) { return refused() ? 2 : keep_in(1, real.cuMemAllocHost_v2(memory, bytes)); }
static int create_event(dyn_event *event, unsigned flags) { return refused() ? 2 : keep_in(2, real.cuEventCreate(event, flags)); }
static int create_stream(void **stream, unsigned flags) { return refused() ? 2 : keep_in(3, real.cuStreamCreate(stream, flags)); }
static int clear_async(dyn_gpu_address memory, unsigned char value, size_t bytes, void *stream) { return refused() ? 2 : real.cuMemsetD8Async(memory, value, bytes, stream); }
static int wait_for_stream(void *stream) { return refused() ? 2 : real.cuStreamSynchronize(stream); }
static int free_memory(dyn_gpu_address memory) {
  held[0]--;
  return real.cuMemFree_v2(memory);
}
static int free_host(void *memory) {
  held[1]--;
  return real.cuMemFreeHost(memory);
}
static int destroy_event(dyn_event event) {
  held[2]--;
  return real.cuEventDestroy_v2(event);
}

static int destroy_stream(void *stream) {
  held[3]--;
  return real.cuStreamDestroy_v2(stream);
}

static void count_memory(void) {
  struct dyn_host_driver *driver = (struct dyn_host_driver *)(uintptr_t)dyn_host_driver();
  real = *driver;
  driver->cuMemAlloc_v2 = alloc;
  driver->cuMemAllocHost_v2 = alloc_host;
  driver->cuEventCreate = create_event;
  driver->cuStreamCreate = create_stream;
  driver->cuStreamDestroy_v2 = destroy_stream;
  driver->cuMemsetD8Async = clear_async;
  driver->cuStreamSynchronize = wait_for_stream;
  driver->cuMemFree_v2 = free_memory;
  driver->cuMemFreeHost = free_host;
  driver->cuEventDestroy_v2 = destroy_event;
}

static void refuse(int which) {
  memset(held, 0, sizeof held);
  asked = 0;
  refuses = which;
}
static bool is_held(void) { return held[0] != 0 || held[1] != 0 || held[2] != 0 || held[3] != 0; }

/* Of scratch memory. What cannot be cleared is kept for a later communicator. */
static void no_scratch(bool near, int calls) {
  struct dyn_offer own;
  for (int n = 1; n <= calls; n++) {
    refuse(n);
    CHECK((near ? dyn_lsa_offer : dyn_gin_offer)(7, 2, 0, &own) == NULL && asked == n && !is_held(), "behind call %d: %d, %d, %d", n, held[0], held[1], held[2]);
  }
  refuse(0);
  lsa = (near ? dyn_lsa_offer : dyn_gin_offer)(7, 2, 0, &own);
  CHECK(lsa != NULL && asked >= calls && is_held());
  dyn_lsa_close(lsa);
}

/* Each of both streams, what is put on it, and the wait for it: there is no communicator, no stream is left, and the memory waits for the next one. */
static void no_clearing(void) {
  struct dyn_offer own;
  for (int n = 1; n <= 6; n++) {
    refuse(n);
    CHECK(dyn_lsa_offer(7, 2, 0, &own) == NULL && asked >= n && !is_held(), "behind call %d: %d, %d, %d, %d", n, held[0], held[1], held[2], held[3]);
  }
  refuse(0);
  lsa = dyn_lsa_offer(7, 2, 0, &own);
  CHECK(lsa != NULL && asked == 6 && !is_held());
  dyn_lsa_close(lsa);
}

static void no_memory(void) {
  load();
  setenv("DYNAMICCL_KERNELS", getenv("DYNAMICCL_GIN_KERNELS"), 1);
  CHECK(dyn_gin_can() && dyn_host_driver() != NULL);
  count_memory();
  no_scratch(true, 4);
  no_clearing();
  no_scratch(false, 3);
  for (int n = 1; n <= 6; n++) { /* on all ranks alike, so that none waits for another */
    refuse(n);
    CHECK(!make_gin() && asked == n && !is_held(), "behind call %d: %d, %d, %d", n, held[0], held[1], held[2]);
    meet();
    dyn_lsa_close(lsa);
  }
}

#endif
