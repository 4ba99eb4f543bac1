/* SPDX-License-Identifier: Apache-2.0
 *
 * What NCCL's log shows, and whether the user wants no line of ours: for what is said on standard error in its place.
 */
#ifndef DYN_SHOWS_H
#define DYN_SHOWS_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ncclDebugInit, src/debug.cc. NCCL has put what its files say into the environment before it calls a plugin. With NCCL_DEBUG_SUBSYS of the
 * user's it is not certain that INFO shows, and a line twice is better than none. */
static inline bool dyn_nccl_shows(bool warning) {
  const char *debug = getenv("NCCL_DEBUG");
  if (!debug) return false;
  if (strcasecmp(debug, "WARN") == 0) return warning;
  return (strcasecmp(debug, "INFO") == 0 || strcasecmp(debug, "TRACE") == 0) && (warning || !getenv("NCCL_DEBUG_SUBSYS"));
}

/* strconv.ParseBool's words for true begin with these letters. */
static inline bool dyn_is_on(const char *value) { return value && *value && strchr("1tT", *value); }
static inline bool dyn_quiet(void) { return dyn_is_on(getenv("DYNAMICCL_QUIET")); }

#endif
