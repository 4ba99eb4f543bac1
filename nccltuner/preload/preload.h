/* SPDX-License-Identifier: Apache-2.0
 *
 * What the preload library and the plugin tell each other, in one process. The preload defines dynamiccl_preload, the
 * plugin finds it with dlsym(RTLD_DEFAULT). The plugin may come and go with NCCL's communicators; the preload stays, so
 * it calls nothing of the plugin's: it works on NCCL's mask itself, which the plugin names.
 */
#ifndef DYN_PRELOAD_H
#define DYN_PRELOAD_H

#include "../plugin/mask.h"

#define DYN_PRELOAD_SYMBOL "dynamiccl_preload"
#define DYN_PRELOAD_VERSION 1

/* The NCCL call that a thread is in. */
struct dyn_preload_call {
  unsigned depth; /* of our wrappers; 0: none */
  bool captured;  /* a guard is up for it */
  bool looked;    /* before is valid: there was a mask */
  struct dyn_mask_before before;
};

struct dyn_preload {
  uint32_t version; /* DYN_PRELOAD_VERSION; anything else: not there, as far as the plugin is concerned */
  uint32_t reserved0;
  _Atomic(atomic_int *) mask; /* plugin: NCCL's activation mask; NULL: the plugin is not loaded */
  atomic_int take;            /* plugin: struct dyn_mask_words */
  atomic_int restore;         /* plugin: likewise */
  atomic_uint turns;
  /* Communicators that the program asked for through this library and that the plugin has not met yet. The plugin takes
   * one away for each that it meets: less than none means that some of the program's calls go past this library. */
  atomic_int announced;
  const struct dyn_preload_call *(*call)(void); /* of this thread; never NULL */
};

#endif
