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

/* It is timed, and of the calls up to last no later one has written over what it tells. */
static bool stays(uint32_t number, uint32_t last, bool closely) {
  uint32_t place = dyn_gin_trip_place(number, closely), later = number + 1;
  while (later <= last && dyn_gin_trip_place(later, closely) != place) later++;
  return place != DYN_GIN_UNTIMED && later > last;
}

/* Each timed call tells once of its puts to every peer on each context that it has, in graphs and outside of them. What a graph holds
 * is never timed closely. */
static void trips_over(unsigned contexts, bool closely) {
  enum { CALLS = 700 };
  const struct step step = {.collective = DYN_ALL_REDUCE, .count = 2001, .ctas = 2, .contexts = contexts, .closely = closely};
  const struct step captured = {.collective = DYN_ALL_TO_ALL, .count = 1000, .ctas = 2, .contexts = contexts, .closely = closely};
  CUgraph graph;
  CUgraphExec launched;
  dyn_lsa_look = gather;
  begin();
  CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
  CHECK(issue(&captured, 1) == 0 && cuda.cuStreamEndCapture(streams[0], &graph) == 0 && cuda.cuGraphInstantiateWithFlags(&launched, graph, 0) == 0);
  for (int n = 0; n < CALLS; n++) CHECK(issue(&step, 0) == 0 && cuda.cuGraphLaunch(launched, streams[1]) == 0);
  wait_for_all();
  for (int lane = 0; lane < 2; lane++) {
    uint32_t last = lane == 0 ? CALLS + 1 : CALLS; /* the exchange of words was a call of the first lane */
    unsigned timed = 0;
    for (uint32_t end = last; end > 0; end--)
      for (unsigned peer = 0; stays(end, last, closely && lane == 0) && peer < (unsigned)numRanks; peer++, timed++)
        for (unsigned context = 0; context < 2; context++) {
          bool wanted = peer != (unsigned)rank && (contexts == 0 || context < contexts);
          for (int i = 0; i < 200 && wanted && is_told(lane, end, peer, context) == 0; i++) usleep(50000);
          CHECK(is_told(lane, end, peer, context) == wanted, "call %u to rank %u on context %u is told %u times", end, peer, context,
                is_told(lane, end, peer, context));
        }
    CHECK(timed / (unsigned)numRanks >= (closely && lane == 0 ? CALLS / 24 : 2), "%u told", timed);
  }
  pthread_mutex_lock(&tripsLock);
  for (size_t i = 0; i < numTrips; i++) {
    const struct dyn_trip *t = &trips[i];
    CHECK(dyn_gin_timed(t->number, closely && !t->inGraph) && t->backend == backends[0] && t->ctas == 2 && t->contexts == (contexts == 0 ? 2 : contexts) && t->counterNs > 0 && t->signalNs > 0);
    CHECK(t->bytes == (t->inGraph ? 2000 : t->context == 0 ? 4016 : 4000), "%lu bytes", t->bytes);
  }
  pthread_mutex_unlock(&tripsLock);
  meet();
}

static void trips_of_calls(void) { trips_over(0, false); }
static void trips_of_shared(void) { trips_over(1, false); }
static void trips_told_closely(void) { trips_over(0, true); }

#endif
