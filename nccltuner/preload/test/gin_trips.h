/* SPDX-License-Identifier: Apache-2.0
 *
 * What puts take. Included by test_gin.c, of which it takes calls.
 */
#ifndef DYN_TEST_GIN_TRIPS_H
#define DYN_TEST_GIN_TRIPS_H

static pthread_mutex_t tripsLock = PTHREAD_MUTEX_INITIALIZER;
static struct dyn_trip trips[4096];
static size_t numTrips;

static void gather(struct dyn_lsa *of) {
  CHECK(of == lsa);
  pthread_mutex_lock(&tripsLock);
  numTrips += dyn_gin_trips(of, trips + numTrips, sizeof trips / sizeof trips[0] - numTrips);
  pthread_mutex_unlock(&tripsLock);
}

static unsigned is_told(bool inGraph, uint32_t number, unsigned peer, unsigned context) {
  unsigned n = 0;
  pthread_mutex_lock(&tripsLock);
  for (size_t i = 0; i < numTrips; i++)
    n += trips[i].inGraph == inGraph && trips[i].number == number && trips[i].peer == peer && trips[i].context == context;
  pthread_mutex_unlock(&tripsLock);
  return n;
}

/* The last timed number up to most, which no later one has written over. */
static uint32_t last_timed(uint32_t most) {
  while (most > 0 && !dyn_gin_timed(most)) most--;
  return most;
}

/* Each timed call tells once of its puts to every peer on each context that it has, in graphs and outside of them. */
static void trips_over(unsigned contexts) {
  enum { CALLS = 700 };
  const struct step step = {.collective = DYN_ALL_REDUCE, .count = 2001, .ctas = 2, .contexts = contexts}, captured = {.collective = DYN_ALL_TO_ALL, .count = 1000, .ctas = 2, .contexts = contexts};
  CUgraph graph;
  CUgraphExec launched;
  dyn_lsa_look = gather;
  begin();
  CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
  CHECK(issue(&captured, 1) == 0 && cuda.cuStreamEndCapture(streams[0], &graph) == 0 && cuda.cuGraphInstantiateWithFlags(&launched, graph, 0) == 0);
  for (int n = 0; n < CALLS; n++) CHECK(issue(&step, 0) == 0 && cuda.cuGraphLaunch(launched, streams[1]) == 0);
  wait_for_all();
  for (int lane = 0; lane < 2; lane++) {
    uint32_t last = last_timed(lane == 0 ? CALLS + 1 : CALLS); /* the exchange of words was a call of the first lane */
    for (uint32_t end = last; end > 0; end = end < DYN_GIN_TRIP_EVERY ? 0 : last_timed(end / DYN_GIN_TRIP_EVERY * DYN_GIN_TRIP_EVERY - 1))
      for (unsigned peer = 0; peer < (unsigned)numRanks; peer++)
        for (unsigned context = 0; context < 2; context++) {
          bool wanted = peer != (unsigned)rank && (contexts == 0 || context < contexts);
          for (int i = 0; i < 200 && wanted && is_told(lane, end, peer, context) == 0; i++) usleep(50000);
          CHECK(is_told(lane, end, peer, context) == wanted, "call %u to rank %u on context %u is told %u times", end, peer, context,
                is_told(lane, end, peer, context));
        }
    CHECK(last > CALLS / 2);
  }
  pthread_mutex_lock(&tripsLock);
  for (size_t i = 0; i < numTrips; i++) {
    const struct dyn_trip *t = &trips[i];
    CHECK(dyn_gin_timed(t->number) && t->backend == DYN_BACKEND_PROXY && t->ctas == 2 && t->contexts == (contexts == 0 ? 2 : contexts) && t->counterNs > 0 && t->signalNs > 0);
    CHECK(t->bytes == (t->inGraph ? 2000 : t->context == 0 ? 4016 : 4000), "%lu bytes", t->bytes);
  }
  pthread_mutex_unlock(&tripsLock);
  meet();
}

static void trips_of_calls(void) { trips_over(0); }
static void trips_of_shared(void) { trips_over(1); }

#endif
