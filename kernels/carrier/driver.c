/* SPDX-License-Identifier: Apache-2.0
 *
 * Never loads anything: the driver is the program's.
 */
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>

#include "say.h"

static struct carrier_driver functions;
static const char *lacking = "libcuda.so.1";
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  if (library == NULL) return;
  lacking = NULL;
#define FIND(name, arguments) \
  *(void **)&functions.name = dlsym(library, #name); \
  if (functions.name == NULL) lacking = #name;
  CARRIER_FUNCTIONS(FIND)
#undef FIND
  dlclose(library); /* gives back the count that dlopen took; who loaded it still has it */
}

const struct carrier_driver *carrier_driver(const char **missing) {
  pthread_once(&once, find);
  if (missing != NULL) *missing = lacking;
  return lacking == NULL ? &functions : NULL;
}

const char *carrier_cuda_error(int error) {
  const char *name = NULL;
  return functions.cuGetErrorName(error, &name) == 0 && name != NULL ? name : "unknown CUDA error";
}

bool carrier_failed_at(const char *file, int line, int result, const char *what) {
  if (result != 0) carrier_say(NCCL_LOG_WARN, file, line, "%s: %s", what, carrier_cuda_error(result));
  return result != 0;
}

bool carrier_enter(carrier_context context, struct carrier_entered *entered) {
  carrier_context now = NULL;
  *entered = (struct carrier_entered){false, CARRIER_RELAXED_CAPTURE};
  if (functions.cuCtxGetCurrent(&now) != 0) return false;
  if (now != context && !(entered->pushed = functions.cuCtxPushCurrent_v2(context) == 0)) return false;
  functions.cuThreadExchangeStreamCaptureMode(&entered->mode);
  return true;
}

void carrier_leave(struct carrier_entered *entered) {
  carrier_context was;
  functions.cuThreadExchangeStreamCaptureMode(&entered->mode);
  if (entered->pushed) functions.cuCtxPopCurrent_v2(&was);
}
