/* SPDX-License-Identifier: Apache-2.0 */
#include "intercepted.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../kernels/host/host.h"
#include "dynamiccl.h"

static struct dyn_intercepted *table;

void dyn_intercepted_add(struct dyn_intercepted *it) {
  it->next = table;
  table = it;
}

static struct dynamicclCalls row(const struct dyn_intercepted *it) {
  return (struct dynamicclCalls){it->name, atomic_load_explicit(&it->calls, memory_order_relaxed),
                                 atomic_load_explicit(&it->kernels, memory_order_relaxed)};
}

size_t dynamicclIntercepted(struct dynamicclCalls *out, size_t room) {
  size_t n = 0;
  for (const struct dyn_intercepted *it = table; it != NULL; it = it->next, n++)
    if (n < room) out[n] = row(it);
  return n;
}

/* Ranks share a terminal: each line says whose it is. */
static void tell(void) {
  for (const struct dyn_intercepted *it = table; it != NULL; it = it->next) {
    struct dynamicclCalls r = row(it);
    if (r.calls > 0) dyn_host_say("process %d: %s: %llu calls, %llu run by our kernels", (int)getpid(), r.name, r.calls, r.kernels);
  }
}

/* The child of a fork tells of its own calls. */
static void forget(void) {
  for (struct dyn_intercepted *it = table; it != NULL; it = it->next) it->calls = it->kernels = 0;
}

__attribute__((constructor)) static void begin(void) {
  const char *wanted = getenv("DYNAMICCL_COUNT_CALLS");
  if (wanted != NULL && strcmp(wanted, "1") == 0 && atexit(tell) == 0) pthread_atfork(NULL, NULL, forget);
}
