/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections of every rank with every other: made once, kept to register memory, and watched, for a connection that closes is
 * how a rank's death is seen. Each rank connects to those below it and is connected to by those above it; only the hello of
 * the other end is waited for, so no ranks wait for each other in a circle.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "carrier.h"
#include "nic/feed.h"
#include "say.h"
#include "wire.h"

enum { WATCH_NS = 20000000 };

struct hello {
  uint32_t rank, nRanks;
  uint8_t process[16], gpu[16];
  char to[64]; /* the listener's name: the right communicator and context */
};

static uint8_t process[16];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void make_process(void) {
  if (!wire_random(process, sizeof process)) memset(process, 0, sizeof process);
}

struct meeting {
  struct carrier *c;
  int board; /* descriptor of this rank's */
  uint64_t deadline;
};

static bool greet(const struct meeting *m, int connection, const struct wire_handle *listener) {
  struct hello hello = {.rank = (uint32_t)m->c->rank, .nRanks = (uint32_t)m->c->nRanks};
  memcpy(hello.process, process, sizeof process);
  memcpy(hello.gpu, m->c->peers[m->c->rank].gpu, sizeof hello.gpu);
  memcpy(hello.to, listener->name, sizeof hello.to);
  return wire_send(connection, &hello, sizeof hello, m->board, m->deadline);
}

/* Takes the connection in any case. False: it was no peer of ours. */
static bool admit(const struct meeting *m, int connection, const struct hello *hello, int board) {
  struct carrier *c = m->c;
  struct carrier_peer *peer = hello->rank < (uint32_t)c->nRanks ? &c->peers[hello->rank] : NULL;
  struct board *opened = board < 0 ? NULL : board_open(board, c->nRanks);
  if (board >= 0) close(board);
  if (peer == NULL || peer->board != NULL || opened == NULL || hello->nRanks != (uint32_t)c->nRanks) {
    board_close(opened, c->nRanks);
    close(connection);
    return false;
  }
  peer->connection = connection;
  peer->board = opened;
  peer->pid = wire_pid(connection);
  memcpy(peer->process, hello->process, sizeof peer->process);
  memcpy(peer->gpu, hello->gpu, sizeof peer->gpu);
  return true;
}

static bool call(const struct meeting *m, int rank, const struct wire_handle *handle) {
  struct hello hello;
  int board = -1, connection = wire_connect(handle, rank, m->deadline);
  if (connection < 0) return false;
  if (!greet(m, connection, handle) || !wire_receive(connection, &hello, sizeof hello, &board, m->deadline)) {
    carrier_warn("rank %d does not answer: %s", rank, wire_why());
    close(connection);
    return false;
  }
  if (hello.rank != (uint32_t)rank) hello.nRanks = 0; /* is no peer */
  if (admit(m, connection, &hello, board)) return true;
  carrier_warn("rank %d belongs to another communicator", rank);
  return false;
}

static int missing(const struct carrier *c) {
  for (int r = c->rank + 1; r < c->nRanks; r++)
    if (c->peers[r].board == NULL) return r;
  return -1;
}

static bool answer(const struct meeting *m, int listener, const struct wire_handle *own) {
  for (int rank; (rank = missing(m->c)) >= 0;) {
    struct hello hello;
    int board = -1, connection = wire_accept(listener, m->deadline);
    if (connection < 0) {
      carrier_warn("rank %d did not connect within %d s", rank, wire_wait_s());
      return false;
    }
    if (!wire_receive(connection, &hello, sizeof hello, &board, m->deadline) || memcmp(hello.to, own->name, sizeof hello.to) != 0 ||
        !greet(m, connection, own)) {
      if (board >= 0) close(board);
      close(connection); /* a stranger, or a rank that gave up: it is missed above */
      continue;
    }
    admit(m, connection, &hello, board);
  }
  return true;
}

static bool meet(struct carrier *c, void *handles[], int listener) {
  struct meeting m = {c, -1, wire_deadline()};
  struct carrier_peer *self = &c->peers[c->rank];
  pthread_once(&once, make_process);
  if ((self->board = board_make(c->nRanks, &m.board)) == NULL) {
    carrier_warn("no shared memory for signals");
    return false;
  }
  c->board = self->board;
  memcpy(self->process, process, sizeof process);
  bool met = true;
  for (int r = 0; r < c->rank && met; r++) met = call(&m, r, handles[r]);
  met = met && answer(&m, listener, handles[c->rank]);
  close(m.board);
  return met;
}

/* Under CUDA's multi-process service. Each process once, which may have several ranks there. */
static unsigned sharing(const struct carrier *c) {
  unsigned count = 0;
  for (int r = 0; r < c->nRanks; r++) {
    bool counts = memcmp(c->peers[r].gpu, c->peers[c->rank].gpu, sizeof c->peers[r].gpu) == 0;
    for (int before = 0; before < r && counts; before++)
      counts = memcmp(c->peers[before].process, c->peers[r].process, sizeof c->peers[r].process) != 0 || memcmp(c->peers[before].gpu, c->peers[r].gpu, sizeof c->peers[r].gpu) != 0;
    count += counts;
  }
  return count;
}

static bool in_context(struct carrier *c) {
  const char *lacking;
  const struct carrier_driver *cuda = carrier_driver(&lacking);
  if (cuda == NULL) {
    carrier_warn("CUDA's driver has no %s", lacking);
    return false;
  }
  return carrier_home_here(&c->home) && !carrier_failed(cuda->cuCtxGetDevice(&c->device), "cuCtxGetDevice") &&
         !carrier_failed(cuda->cuDeviceGetUuid_v2(c->peers[c->rank].gpu, c->device), "cuDeviceGetUuid");
}

/* Ranks have met. With type Proxy a kernel moves all where it is there; else CUDA does. */
static bool make_adder(struct carrier *c, bool proxy) {
  struct carrier_entered entered;
  if (!carrier_enter(&c->home, &entered)) return false;
  if (proxy) c->feed = nic_feed_make(c);
  c->adder = mover_make(MOVER_ADDS, c->feed);
  carrier_leave(&entered);
  return c->adder != NULL;
}

int carrier_connect(struct carrier_instance *instance, void *handles[], int nRanks, int rank, int listener, bool proxy, struct carrier **out) {
  struct carrier *c = calloc(1, sizeof *c + (size_t)nRanks * sizeof *c->peers);
  if (c == NULL) return ncclSystemError;
  pthread_mutex_init(&c->lock, NULL);
  c->instance = instance;
  c->rank = rank;
  c->nRanks = nRanks;
  for (int r = 0; r < nRanks; r++) c->peers[r].rank = r, c->peers[r].connection = -1;
  c->watched = calloc((size_t)nRanks, sizeof *c->watched);
  if (c->watched == NULL || !in_context(c) || !meet(c, handles, listener)) {
    carrier_close(c);
    return ncclSystemError;
  }
  for (int r = 0; r < nRanks; r++) c->watched[r] = (struct pollfd){.fd = c->peers[r].connection, .events = POLLRDHUP};
  c->sharing = sharing(c);
  if (!make_adder(c, proxy)) {
    carrier_close(c);
    return ncclSystemError;
  }
  *out = c;
  return ncclSuccess;
}

struct carrier_lane *carrier_lane_make(struct carrier *c) {
  struct carrier_lane *lane = calloc(1, sizeof *lane + (size_t)c->nRanks * sizeof *lane->queues);
  struct carrier_entered entered;
  if (lane == NULL || !carrier_enter(&c->home, &entered)) {
    free(lane);
    return NULL;
  }
  lane->mover = mover_make(MOVER_PUTS, c->feed);
  carrier_leave(&entered);
  if (lane->mover == NULL) {
    free(lane);
    return NULL;
  }
  lane->c = c;
  pthread_mutex_lock(&c->lock);
  lane->next = c->lanes;
  c->lanes = lane;
  pthread_mutex_unlock(&c->lock);
  return lane;
}

void carrier_lane_free(struct carrier_lane *lane) {
  pthread_mutex_lock(&lane->c->lock);
  struct carrier_lane **at = &lane->c->lanes;
  while (*at != lane) at = &(*at)->next;
  *at = lane->next;
  pthread_mutex_unlock(&lane->c->lock);
  mover_free(lane->mover);
  for (int r = 0; r < lane->c->nRanks; r++)
    for (struct carrier_request *request = lane->queues[r].first, *next; request != NULL; request = next) {
      next = request->next;
      free(request);
    }
  free(lane);
}

void carrier_close(struct carrier *c) {
  if (c->board != NULL) atomic_store(&c->board->closed, 1); /* before the connections: peers then know why they closed */
  while (c->lanes != NULL) carrier_lane_free(c->lanes);
  mover_free(c->adder);
  c->adder = NULL;
  nic_feed_free(c->feed); /* from here on nothing is copied */
  c->feed = NULL;
  for (int n = 0; n < CARRIER_MAX_REGIONS; n++) {
    struct carrier_region *region = atomic_load(&c->regions[n]);
    if (region != NULL) carrier_deregister(c, region);
  }
  for (int r = 0; r < c->nRanks; r++) {
    struct carrier_peer *peer = &c->peers[r];
    if (peer->connection >= 0) close(peer->connection);
    board_close(peer->board, c->nRanks);
  }
  for (int n = 0; n < CARRIER_GONE; n++) free(c->gone[n]);
  pthread_mutex_destroy(&c->lock);
  free(c->watched);
  free(c);
}

void carrier_watch(struct carrier *c) {
  uint64_t now = carrier_now_ns();
  if (now - c->watchedNs < WATCH_NS) return;
  c->watchedNs = now;
  pthread_mutex_lock(&c->instance->lock);
  carrier_faults_look(&c->instance->faults);
  pthread_mutex_unlock(&c->instance->lock);
  if (poll(c->watched, (nfds_t)c->nRanks, 0) <= 0) return;
  for (int r = 0; r < c->nRanks; r++) {
    struct carrier_peer *peer = &c->peers[r];
    if (c->watched[r].revents == 0) continue;
    c->watched[r].fd = -1;
    peer->gone = true;
    if (atomic_load(&peer->board->closed)) continue; /* who left was done; only what is still sent to it is an error */
    c->lost = true;
    carrier_is_gone(c, peer);
  }
}

/* True: not before. */
static bool say_once(struct carrier_instance *instance, const struct carrier_peer *peer) {
  pthread_mutex_lock(&instance->lock);
  struct carrier_gone *gone = instance->said;
  while (gone != NULL && (gone->rank != peer->rank || memcmp(gone->process, peer->process, sizeof gone->process) != 0)) gone = gone->next;
  bool first = gone == NULL && (gone = malloc(sizeof *gone)) != NULL;
  if (first) {
    gone->next = instance->said;
    gone->rank = peer->rank;
    memcpy(gone->process, peer->process, sizeof gone->process);
    instance->said = gone;
  }
  pthread_mutex_unlock(&instance->lock);
  return first;
}

int carrier_is_gone(struct carrier *c, const struct carrier_peer *peer) {
  if (say_once(c->instance, peer))
    carrier_warn("rank %d (process %d) %s: nothing of rank %d reaches it any more", peer->rank, (int)peer->pid,
                 atomic_load(&peer->board->closed) ? "closed the communicator" : "died", c->rank);
  return ncclRemoteError;
}
