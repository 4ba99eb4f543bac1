/* SPDX-License-Identifier: Apache-2.0
 *
 * Which calls are timed. Included by test_probe.c.
 */
#ifndef DYN_TEST_PROBE_WHICH_H
#define DYN_TEST_PROBE_WHICH_H

static void off(void) {
  atomic_store(&preload->timing, 0);
  call(1, 0, 10, 100);
  CHECK(atomic_load(&gpu->records) == 0 && atomic_load(&gpu->made) == 0);
  atomic_store(&preload->mask, NULL); /* the plugin is gone, whatever else it left */
  atomic_store(&preload->timing, 1);
  call(2, 0, 10, 100);
  CHECK(atomic_load(&gpu->records) == 0);
}

/* Calls that are wanted one by one, while nothing else is timed. */
static void watched(void) {
  struct dyn_watch_list *list = &preload->watched;
  function reduce = find("ncclReduce");
  const uint64_t key = dyn_watch_key((void *)6, 5, 3, 8); /* what all_reduce calls */
  everything_is_over();
  atomic_store(&preload->timing, 0);
  CHECK(dyn_watch_add(list, key) && dyn_watch_add(list, dyn_watch_key((void *)7, 3, 3, 8)));
  call(1, 0, 10, 100);
  struct dyn_sample s = await();
  CHECK(s.seq == 1);
  unsigned records = atomic_load(&gpu->records);
  plan.asks = 0;
  last()->inside = inside;
  reduce(1, 2, 3, 4, 5, 0, 6, FAKE_STREAM(0), 0); /* another function, */
  find("ncclAllReduce")(1, 2, 4, 4, 5, 6, FAKE_STREAM(0), 0, 0); /* another size, */
  find("ncclAllReduce")(1, 2, 3, 4, 5, 8, FAKE_STREAM(0), 0, 0); /* another communicator, */
  CHECK(atomic_load(&gpu->records) == records, "%u events", atomic_load(&gpu->records) - records);
  find("ncclAllReduce")(1, 2, 2, 4, 5, 6, FAKE_STREAM(0), 0, 0);
  find("ncclAllReduce")(1, 2, 6, 7, 5, 6, FAKE_STREAM(0), 0, 0); /* 24 bytes again */
  CHECK(atomic_load(&gpu->records) == records + 2, "a call that nobody describes has no second event");
  find("ncclCommDestroy")(6, 0, 0, 0, 0, 0, 0, 0, 0);
  CHECK(!dyn_watch_has(list, key) && atomic_load(&list->used) == 1);
  find("ncclCommAbort")(7, 0, 0, 0, 0, 0, 0, 0, 0);
  CHECK(atomic_load(&list->used) == 0);
  none();
}

/* Those of a communicator that rests are not timed but one by one, while others' are. */
static void resting(void) {
  everything_is_over();
  dyn_rest_add(&preload->resting, (void *)6); /* whose calls all_reduce makes */
  unsigned records = atomic_load(&gpu->records);
  call(1, 0, 10, 100);
  CHECK(atomic_load(&gpu->records) == records && preload->call()->timed == NULL);
  dyn_watch_add(&preload->watched, dyn_watch_key((void *)6, 5, 3, 8));
  call(2, 0, 10, 100);
  CHECK(await().seq == 2);
  dyn_watch_forget(&preload->watched, NULL);
  dyn_rest_add(&preload->resting, (void *)7);
  CHECK(dyn_rest_has(&preload->resting, (void *)6));
  dyn_rest_remove(&preload->resting, (void *)8), dyn_rest_remove(&preload->resting, NULL);
  find("ncclCommDestroy")(6, 0, 0, 0, 0, 0, 0, 0, 0);
  CHECK(!dyn_rest_has(&preload->resting, (void *)6) && dyn_rest_has(&preload->resting, (void *)7), "another one may be made there");
  call(3, 0, 10, 100);
  CHECK(await().seq == 3);
  none();
}

#endif
