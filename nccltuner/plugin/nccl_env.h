/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's own numbers of the environment, as NCCL reads them (src/misc/param.cc).
 */
#ifndef DYN_NCCL_ENV_H
#define DYN_NCCL_ENV_H

#include <stdbool.h>
#include <stdlib.h>

static inline bool nccl_is_on(const char *name) {
  const char *value = getenv(name);
  return value && strtoll(value, NULL, 0) != 0;
}

/* Of what is on by itself. */
static inline bool nccl_is_off(const char *name) {
  const char *value = getenv(name);
  return value && *value && strtoll(value, NULL, 0) == 0;
}

#endif
