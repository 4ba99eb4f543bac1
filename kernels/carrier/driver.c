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

bool carrier_home_here(struct carrier_home *home) {
  if (carrier_failed(functions.cuCtxGetCurrent(&home->context), "cuCtxGetCurrent")) return false;
  if (home->context != NULL) return !carrier_failed(functions.cuCtxGetId(home->context, &home->id), "cuCtxGetId");
  carrier_warn("no CUDA context is current where NCCL connects");
  return false;
}

bool carrier_lives(const struct carrier_home *home) {
  unsigned long long id;
  return functions.cuCtxGetId(home->context, &id) == 0 && id == home->id;
}

bool carrier_enter(const struct carrier_home *home, struct carrier_entered *entered) {
  carrier_context now = NULL;
  *entered = (struct carrier_entered){false, CARRIER_RELAXED_CAPTURE};
  if (!carrier_lives(home) || functions.cuCtxGetCurrent(&now) != 0) return false;
  if (now != home->context && !(entered->pushed = functions.cuCtxPushCurrent_v2(home->context) == 0)) return false;
  functions.cuThreadExchangeStreamCaptureMode(&entered->mode);
  return true;
}

void carrier_leave(struct carrier_entered *entered) {
  carrier_context was;
  functions.cuThreadExchangeStreamCaptureMode(&entered->mode);
  if (entered->pushed) functions.cuCtxPopCurrent_v2(&was);
}
