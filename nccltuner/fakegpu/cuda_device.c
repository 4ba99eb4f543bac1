/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices, contexts and the texts of errors.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_stream.h"

static const struct { CUresult code; const char *name, *text; } errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "the capture was not initiated in this stream"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
};

static int find(CUresult error, const char **name, const char **text) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    if (errors[i].code != error) continue;
    *name = errors[i].name;
    *text = errors[i].text;
    return 0;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

FAKEGPU_API CUresult cuGetErrorName(CUresult error, const char **name) {
  const char *text;
  return find(error, name, &text);
}

FAKEGPU_API CUresult cuGetErrorString(CUresult error, const char **text) {
  const char *name;
  return find(error, &name, text);
}

/* Of the environment; usual: as a machine of H200 has it. */
static int number(const char *name, int usual) {
  const char *text = getenv(name);
  return text == NULL ? usual : atoi(text);
}

static int gpus(void) { return number("FAKEGPU_GPUS", 8); }

int device_exists(CUdevice device) { return device >= 0 && device < gpus(); }

FAKEGPU_API CUresult cuInit(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return gpus() > 0 ? 0 : CUDA_ERROR_NO_DEVICE;
}

FAKEGPU_API CUresult cuDriverGetVersion(int *version) {
  *version = 13000;
  return 0;
}

FAKEGPU_API CUresult cuDeviceGetCount(int *count) {
  *count = gpus();
  return 0;
}

FAKEGPU_API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  if (!device_exists(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return 0;
}

FAKEGPU_API CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  (void)device;
  snprintf(name, (size_t)length, "no GPU, stand-in for an H200");
  return 0;
}

FAKEGPU_API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  memset(uuid, 0xfa, sizeof *uuid);
  uuid->bytes[15] = (unsigned char)device;
  return 0;
}

FAKEGPU_API CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device) {
  snprintf(id, (size_t)length, "0000:%02x:00.0", 0x10 + device);
  return 0;
}

FAKEGPU_API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  (void)device;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = number("FAKEGPU_MULTIPROCESSORS", 132); return 0;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; return 0;
    case CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT: *value = number("FAKEGPU_SYNC_DOMAINS", 4); return 0;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 232448; return 0;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

FAKEGPU_API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  if (can == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (!device_exists(device) || !device_exists(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can = 1;
  return 0;
}

static struct CUctx_st contexts[64];

__attribute__((constructor)) static void make_contexts(void) {
  for (int i = 0; i < (int)(sizeof contexts / sizeof *contexts); i++)
    contexts[i] = (struct CUctx_st){.device = i, .legacy = {.context = &contexts[i], .nowNs = STREAM_BEGIN_NS}};
}

FAKEGPU_API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  if (device < 0 || device >= 64) return CUDA_ERROR_INVALID_DEVICE;
  *context = &contexts[device];
  return 0;
}

/* It is there again as soon as somebody uses it, and is another one: as after cudaDeviceReset. */
FAKEGPU_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  if (device < 0 || device >= 64) return CUDA_ERROR_INVALID_DEVICE;
  queue_wait_context(&contexts[device]);
  __atomic_fetch_add(&contexts[device].resets, 1, __ATOMIC_SEQ_CST);
  memory_reset(&contexts[device]);
  return 0;
}

/* Of each thread; one more is pushed at most. */
static _Thread_local CUcontext current, pushed;

CUcontext fakegpu_current(void) { return current; }

FAKEGPU_API CUresult cuCtxSetCurrent(CUcontext context) {
  current = context;
  return 0;
}

FAKEGPU_API CUresult cuCtxGetCurrent(CUcontext *context) {
  if (context == NULL) return CUDA_ERROR_INVALID_VALUE;
  *context = current;
  return 0;
}

FAKEGPU_API CUresult cuCtxGetDevice(CUdevice *device) {
  if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (current == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current->device;
  return 0;
}

FAKEGPU_API CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
  if (context == NULL) return CUDA_ERROR_INVALID_VALUE;
  *id = (unsigned long long)(uintptr_t)context << 8 | __atomic_load_n(&context->resets, __ATOMIC_SEQ_CST);
  return 0;
}

FAKEGPU_API CUresult cuCtxPushCurrent_v2(CUcontext context) {
  if (pushed != NULL || context == NULL) return CUDA_ERROR_INVALID_VALUE;
  lock_pass(context);
  pushed = current;
  current = context;
  return 0;
}

FAKEGPU_API CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  *context = current;
  current = pushed;
  pushed = NULL;
  return 0;
}

FAKEGPU_API CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
  static _Thread_local int own; /* no call is forbidden here, whatever is captured */
  int before = own;
  own = *mode;
  *mode = before;
  return 0;
}

FAKEGPU_API CUresult cuCtxSynchronize(void) { return stream_wait(NULL); }

FAKEGPU_API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  return peer == NULL || flags != 0 ? CUDA_ERROR_INVALID_VALUE : 0;
}
