/* SPDX-License-Identifier: Apache-2.0
 *
 * The story of test_making.c about AllReduces that average, for which NCCL has no device kernel (../gathers.c). Included by test_making.c.
 */
#ifndef DYN_AVERAGE_STEPS_H
#define DYN_AVERAGE_STEPS_H

#include "broadcast_steps.h"

/* Whether an AllReduce of the communicator has averaged floats, by itself or in a group, for good; one that is only simulated does not. */
static void averages(void) {
  enum { INT32 = 2, HALF = 6, AVERAGE = 4 };
  static const struct { const char *name; int type, op; size_t count; uintptr_t comm; bool averages; } calls[] = {
      {"ncclAllReduce", HALF, AVERAGE, 8, COMM, true}, {"ncclAllReduceConfig", HALF, AVERAGE, 8, COMM, true}, {"ncclAllReduce", FLOAT32, AVERAGE, 8, COMM, true},
      {"ncclAllReduce", HALF, SUM, 8, COMM, false}, {"ncclAllReduce", 8, AVERAGE, 8, COMM, false}, {"ncclAllReduce", INT32, AVERAGE, 8, COMM, false}, {"ncclAllReduce", HALF, AVERAGE, 0, COMM, false},
      {"ncclAllReduce", HALF, AVERAGE, 8, OTHER_COMM, false}, {"ncclAllReduceConfig", HALF, AVERAGE, 0, COMM, false}, {"ncclAllReduceConfig", HALF, SUM, 8, COMM, false}};
  prepare();
  madeComm[0] = 0;
  make_one(meets_plugin, 0, 0);
  CHECK(token != NULL && !dyn_gathers_averages(token));
  fake->inside = succeed;
  for (size_t i = 0; i < 3 * sizeof calls / sizeof *calls; i++) {
    enum { BY_ITSELF, GROUPED, SIMULATED } how = i % 3;
    size_t c = i / 3;
    bool averages = calls[c].averages && how != SIMULATED;
    atomic_store(&token->averages, false);
    fake->inside = succeed;
    if (how != BY_ITSELF) group_start();
    CHECK(find(calls[c].name)(1, 2, calls[c].count, (uintptr_t)calls[c].type, (uintptr_t)calls[c].op, calls[c].comm, 0, 0, 0) == 0);
    CHECK(dyn_gathers_averages(token) == (averages && how == BY_ITSELF), "call %zu", i);
    averageAsked = averages;
    fake->inside = asks_at_end;
    if (how != BY_ITSELF) CHECK(find(how == GROUPED ? "ncclGroupEnd" : "ncclGroupSimulateEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    CHECK(averageAsked == averages && dyn_gathers_averages(token) == averages, "call %zu at its group's end", i);
    fake->inside = succeed;
    group_start(); /* another group has nothing of it */
    CHECK(gather(false, 8, COMM, NULL) == 0);
    group_end();
    CHECK(dyn_gathers_averages(token) == averages, "behind call %zu", i);
  }
  atomic_store(&token->averages, true);
  preload->gathers->over(token);
  madeComm[0] = 0;
  make_one(meets_plugin, 0, 0);
  CHECK(token != NULL && !dyn_gathers_averages(token), "of another communicator");
}

static int refuses(void) { return 4; } /* ncclInvalidArgument */
static bool windowAsked;
static int finds_window(void) { return windowAsked = dyn_gathers_windows(token), 0; }

/* Whether the program has called for a window of the communicator, from before that call on and for good, whatever has become of it. */
static void registers(void) {
  void *window = NULL;
  prepare();
  madeComm[0] = 0;
  make_one(meets_plugin, 0, 0);
  fake->inside = succeed;
  CHECK(token != NULL && !dyn_gathers_windows(token));
  CHECK(find("ncclCommWindowRegister")(OTHER_COMM, 4096, 4096, (uintptr_t)&window, 1, 0, 0, 0, 0) == 0 && !dyn_gathers_windows(token));
  fake->inside = finds_window;
  windowAsked = false;
  CHECK(find("ncclCommWindowRegister")(COMM, 4096, 4096, (uintptr_t)&window, 1, 0, 0, 0, 0) == 0 && windowAsked);
  fake->inside = succeed;
  find("ncclCommWindowDeregister")(COMM, 4096, 0, 0, 0, 0, 0, 0, 0);
  CHECK(dyn_gathers_windows(token));
  preload->gathers->over(token);
  madeComm[0] = 0;
  make_one(meets_plugin, 0, 0);
  fake->inside = refuses;
  CHECK(token != NULL && !dyn_gathers_windows(token), "of another communicator");
  CHECK(find("ncclCommWindowRegister")(COMM, 4096, 4096, (uintptr_t)&window, 1, 0, 0, 0, 0) == 4 && dyn_gathers_windows(token));
  fake->inside = succeed;
}

#endif
