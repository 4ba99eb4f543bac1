/* SPDX-License-Identifier: Apache-2.0 */
#include "card_reset.h"

#include <dlfcn.h>

#include "card_rig.h"

static int (*cudaReset)(int device);

/* Who launches kernels stands still while the context goes, when no kernel is left, or a kernel here would write into what is no more; and then goes
 * on, and NCCL asks for errors, gives memory back and destroys all. Nothing of what went with the context is touched, nobody waits for it, and
 * the next communicator of the process is none the worse. */
static void reset(void) {
  alarm(180);
  cards_begin_small();
  for (int c = 0; c < CONTEXTS; c++) {
    struct posting p = card_put(c, 1 - rank, &near, 0, &far, 0, 70000);
    card_signal(&p, c, 1 - rank, 0, 1);
    post(&p);
    await_signal(c, 0, 1);
  }
  meet();
  *(void **)&cudaReset = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuDevicePrimaryCtxReset_v2");
  cards_pause(true);
  CHECK(cudaReset != NULL && cudaReset(rank) == 0);
  for (int c = 0; c < CONTEXTS; c++) CHECK(card_failed(c), "context %d goes on", c);
  const int said = atomic_load(&warnings);
  cards_pause(false);
  cards_turn();
  meet();
  const uint64_t from = ms_now();
  cards_stop();
  memory_deregister(&near);
  memory_deregister(&far);
  cards_end();
  CHECK(ms_now() - from < 4900 && atomic_load(&warnings) == said, "%ld ms, %s", (long)(ms_now() - from), lastWarning); /* copies are waited for for 5 s */
}

void play_reset(void) {
  setenv("DYNAMICCL_CARRIER_IDLE_US", "300", 0);
  play("reset", 2, -1, reset);
}
