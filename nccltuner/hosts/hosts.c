/* SPDX-License-Identifier: Apache-2.0 */
#include "hosts.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../../kernels/host/host.h"
#include "../../kernels/host/thread.h"
#include "hub.h"
#include "own.h"
#include "samples.h"
#include "speaker.h"

#define NS_PER_MS UINT64_C(1000000)
#ifndef LOOK_MS /* tests are in more of a hurry */
#define LOOK_MS 300     /* all ranks of one host have registered by then, and need nobody */
#define CONNECT_MS 5000
#define AGAIN_MS 1000   /* between tries to reach the hub */
#define TICK_MS 20      /* how late it is seen that a daemon has published; and what was told is looked at no more often */
#define STRANGERS_MS 5000 /* who has connected and said nothing for so long is none of ours */
#endif
#define MOST_GUESTS 4096 /* of one hub: ranks times communicators, and strangers; and one in so many of the descriptors that the program may have */
#define DESCRIPTORS 4
#define MOST_SAMPLES 65536 /* bytes of a connection that wait to be sent */

enum { LOG_WARN = 2, LOG_INFO = 3 }; /* ncclDebugLogLevel */
#define say(s, level, ...) \
  do { \
    if ((s)->log) (s)->log(level, level == LOG_WARN ? ~0ul : 0x41ul, __FILE__, __LINE__, "DynamICCL: " __VA_ARGS__); \
  } while (0)

/* A connection to this process's hub. */
struct guest {
  struct guest *next;
  struct dyn_wire wire;
  int number;
  bool greeted, broken;
  uint64_t cameNs;
};

pthread_mutex_t dyn_speakers_lock = PTHREAD_MUTEX_INITIALIZER;
/* All under it. */
struct speaker *dyn_speakers;
static struct guest *guests;
static unsigned numGuests;
static int lastGuest;
static bool full; /* there was no descriptor for who comes: asked again in a while, and not at once */
static struct dyn_hub hub;
static int listener = -1;
static struct dyn_file listenerIs;
static struct dyn_bell bell = DYN_BELL_NONE;
static struct dyn_root listens; /* where, and the number that who connects must know */
static bool running;
static uint64_t nowNs, lookedNs;

/* ---- the hub's side ---- */

static struct guest *guest_of(int number) {
  struct guest *g = guests;
  while (g != NULL && g->number != number) g = g->next;
  return g;
}

static void send_guest(void *to, int connection, const struct dyn_hosts_message *m, const void *payload) {
  struct guest *g = guest_of(connection);
  (void)to;
  size_t most = m->kind == DYN_HOSTS_TRIPS ? MOST_SAMPLES / 2 : MOST_SAMPLES; /* plans go first, then calls */
  if ((m->kind == DYN_HOSTS_SAMPLES || m->kind == DYN_HOSTS_TRIPS) && g != NULL && g->wire.numOut > most) {
    dyn_hosts_lose(m->count);
    return;
  }
  if (g != NULL && !g->broken) g->broken = !dyn_wire_send(&g->wire, m, payload); /* the hub hears of it when it is not at work */
}

static void drop_guest(void *to, int connection) {
  struct guest *g = guest_of(connection);
  (void)to;
  if (g != NULL) g->broken = true, g->greeted = false;
}

static bool has_rank(void *to, uint64_t commId) {
  const struct speaker *s = dyn_speakers;
  (void)to;
  while (s != NULL && s->rank.place.commId != commId) s = s->next;
  return s != NULL;
}

static bool take_from_guest(void *to, const struct dyn_hosts_message *m, const void *payload) {
  struct guest *g = to;
  if (m->kind == DYN_HOSTS_HELLO && (g->greeted || m->nonce != listens.nonce)) return false;
  if (m->kind != DYN_HOSTS_HELLO && !g->greeted) return false;
  bool sound = dyn_hub_take(&hub, g->number, m, payload, nowNs);
  if (m->kind == DYN_HOSTS_HELLO) g->greeted = sound;
  return sound;
}

static unsigned most_guests(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur / DESCRIPTORS > MOST_GUESTS) return MOST_GUESTS;
  return (unsigned)(limit.rlim_cur / DESCRIPTORS);
}

static void admit(void) {
  unsigned most = most_guests();
  full = numGuests >= most;
  while (numGuests < most) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      full = errno != EAGAIN && errno != EWOULDBLOCK;
      return;
    }
    struct guest *g = calloc(1, sizeof *g);
    if (g == NULL) {
      close(fd);
      return;
    }
    dyn_wire_adopt(&g->wire, fd);
    g->number = ++lastGuest;
    g->cameNs = nowNs;
    g->next = guests;
    guests = g;
    numGuests++;
  }
}

static void serve_guests(void) {
  for (struct guest *g = guests; g != NULL; g = g->next) {
    if (g->broken) continue;
    bool sound = dyn_wire_flush(&g->wire) && dyn_wire_read(&g->wire, take_from_guest, g) && (g->greeted || nowNs - g->cameNs < NS_PER_MS * STRANGERS_MS);
    g->broken |= !sound; /* or because of what the hub said to it meanwhile */
  }
  for (struct guest **at = &guests, *g; (g = *at) != NULL;) {
    if (!g->broken) {
      at = &g->next;
      continue;
    }
    if (g->greeted) dyn_hub_lost(&hub, g->number);
    *at = g->next;
    dyn_wire_close(&g->wire);
    free(g);
    numGuests--;
  }
  dyn_hub_tick(&hub, nowNs);
}

/* ---- the ranks' side ---- */

static void send_to_hub(void *to, const struct dyn_hosts_message *m, const void *payload) {
  struct speaker *s = to;
  s->broken |= !dyn_wire_send(&s->wire, m, payload);
}

static bool take_from_hub(void *to, const struct dyn_hosts_message *m, const void *payload) {
  struct speaker *s = to;
  bool sound = dyn_hosts_rank_take(&s->rank, m, payload, nowNs);
  if (sound) s->soughtNs = 0; /* not before: the hub may be gone and somebody else listen there, or it does not want us */
  return sound;
}

static void finish(struct speaker *s) {
  dyn_wire_close(&s->wire);
  s->over = true;
}

static void give_up(struct speaker *s) {
  bool met = s->rank.together;
  dyn_hosts_rank_parted(&s->rank);
  finish(s);
  if (met) say(s, LOG_WARN, "a communicator has lost the process that made its id: its plan stays as it is");
  else say(s, LOG_INFO, "not all ranks of a communicator over several hosts were met: it runs plain NCCL; start all with `dynamiccld run`, and let them "
           "reach each other by TCP as NCCL does");
}

static void cut(struct speaker *s) {
  dyn_wire_close(&s->wire);
  s->broken = false;
  if (s->spoke) dyn_hosts_rank_cut(&s->rank);
  s->spoke = false;
  if (s->soughtNs == 0) s->soughtNs = nowNs;
}

static void seek(struct speaker *s) {
  if (s->triedNs == 0 || nowNs - s->triedNs > NS_PER_MS * AGAIN_MS) {
    s->triedNs = nowNs;
    dyn_wire_connect(&s->wire, &s->root.at.any, dyn_root_bytes(&s->root));
  }
}

static void talk(struct speaker *s) {
  bool was = s->wire.connecting;
  if (!dyn_wire_flush(&s->wire) || (was && s->wire.connecting && nowNs - s->triedNs > NS_PER_MS * CONNECT_MS)) {
    cut(s);
    return;
  }
  if (s->wire.connecting) return;
  if (!s->spoke) {
    s->spoke = true;
    dyn_hosts_rank_greet(&s->rank);
  }
  if (!dyn_wire_read(&s->wire, take_from_hub, s)) s->broken = true;
  if (!s->broken) dyn_hosts_rank_tick(&s->rank, nowNs);
  if (s->broken) cut(s);
  else if (s->rank.together && s->rank.place.others == NULL) finish(s); /* all on one host */
}

static void serve_speaker(struct speaker *s) {
  const struct dyn_record *record = s->rank.place.record;
  if (s->over) return;
  s->away = s->soughtNs != 0 && nowNs - s->soughtNs > DYN_HOSTS_GONE_NS;
  if (!s->rank.together && __atomic_load_n(&record->joined, __ATOMIC_ACQUIRE) == s->rank.place.nRanks) finish(s);
  else if (s->soughtNs != 0 && nowNs - s->soughtNs > DYN_HOSTS_SEEK_NS) give_up(s);
  else if (s->wire.fd >= 0) talk(s);
  else if (s->soughtNs != 0) seek(s);
  else if (nowNs - s->beganNs > NS_PER_MS * LOOK_MS) {
    dyn_hosts_rank_apart(&s->rank);
    s->soughtNs = nowNs;
    seek(s);
  }
}

/* ---- the thread ---- */

/* What the program has not closed. Guests' memory stays, as in a child of a fork, which gives nothing back. */
static void close_all(void) {
  for (struct guest *g = guests; g != NULL; g = g->next) dyn_close_file(g->wire.fd, &g->wire.file);
  for (struct speaker *s = dyn_speakers; s != NULL; s = s->next) dyn_close_file(s->wire.fd, &s->wire.file);
  dyn_close_file(listener, &listenerIs);
  dyn_bell_close(&bell);
  guests = NULL;
  numGuests = 0;
  listener = -1;
  listens = (struct dyn_root){0};
  running = false;
}

static unsigned add(struct pollfd *list, unsigned n, int fd, bool writes) {
  if (fd < 0) return n;
  list[n] = (struct pollfd){.fd = fd, .events = (short)(POLLIN | (writes ? POLLOUT : 0))};
  return n + 1;
}

/* What is to be waited for; how long, in ms. NULL: no memory, and the wait is all. */
static struct pollfd *what_to_wait_for(nfds_t *n, int *timeoutMs) {
  unsigned most = 2 + numGuests, m = 0;
  bool busy = numGuests > 0 || full;
  for (const struct speaker *s = dyn_speakers; s != NULL; s = s->next) most++, busy |= !s->over;
  struct pollfd *list = malloc(most * sizeof *list);
  *timeoutMs = busy || list == NULL ? TICK_MS - (int)((nowNs - lookedNs) / NS_PER_MS) : -1;
  *n = 0;
  if (list == NULL) return NULL;
  m = add(list, m, bell.ends[0], false);
  m = add(list, m, full ? -1 : listener, false);
  for (const struct guest *g = guests; g != NULL; g = g->next) m = add(list, m, g->wire.fd, dyn_wire_waits(&g->wire));
  for (const struct speaker *s = dyn_speakers; s != NULL; s = s->next) m = add(list, m, s->wire.fd, dyn_wire_waits(&s->wire));
  *n = m;
  return list;
}

static void *run(void *nothing) {
  prctl(PR_SET_NAME, "dynamiccl-hosts");
  pthread_mutex_lock(&dyn_speakers_lock);
  for (;;) {
    nfds_t n;
    int timeoutMs;
    struct pollfd *list = what_to_wait_for(&n, &timeoutMs);
    pthread_mutex_unlock(&dyn_speakers_lock);
    poll(list, n, timeoutMs);
    free(list);
    pthread_mutex_lock(&dyn_speakers_lock);
    if (!dyn_bell_hear(&bell)) break;
    nowNs = dyn_host_ns();
    if (listener >= 0) admit();
    serve_guests();
    for (struct speaker *s = dyn_speakers; s != NULL; s = s->next) serve_speaker(s);
    bool looks = nowNs - lookedNs >= NS_PER_MS * TICK_MS;
    if (looks) lookedNs = nowNs;
    dyn_speakers_exchange(looks);
  }
  /* The program has closed what is not its own. Nobody may wait for this thread. */
  for (struct speaker *s = dyn_speakers; s != NULL; s = s->next)
    if (!s->over) give_up(s);
  close_all();
  dyn_hub_free(&hub);
  pthread_mutex_unlock(&dyn_speakers_lock);
  return nothing;
}

static bool start(void) {
  if (running) return true;
  if (!dyn_bell_make(&bell)) return false;
  hub.send = send_guest;
  hub.drop = drop_guest;
  hub.has = has_rank;
  return running = dyn_thread_start(run, NULL);
}

/* ---- forks: the child has neither the thread nor a say on its parent's connections ---- */

static void fork_prepare(void) { pthread_mutex_lock(&dyn_speakers_lock); }
static void fork_parent(void) { pthread_mutex_unlock(&dyn_speakers_lock); }
static void fork_child(void) {
  close_all();
  dyn_speakers = NULL;
  hub = (struct dyn_hub){0};
  dyn_hosts_forget_samples();
  dyn_speakers_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
static void watch_forks(void) { pthread_atfork(fork_prepare, fork_parent, fork_child); }
static void watch_forks_once(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
}
/* ---- for others ---- */

static bool switched_off(void) {
  const char *value = getenv("DYNAMICCL_HOSTS");
  return value != NULL && *value != '\0' && strchr("0fF", *value) != NULL;
}

/* With NCCL_COMM_ID every process makes the same id for itself. */
void dyn_hosts_mark(void *id) {
  struct dyn_root at;
  const char *given = getenv("NCCL_COMM_ID");
  if (switched_off() || (given != NULL && *given != '\0') || !dyn_id_address(id, &at)) return;
  watch_forks_once();
  pthread_mutex_lock(&dyn_speakers_lock);
  if (!dyn_is_file(listener, &listenerIs)) {
    listener = dyn_root_listen(&at, &listens);
    listenerIs = dyn_file_of(listener);
  }
  bool has = listener >= 0 && dyn_root_same_host(&at, &listens);
  if (has) dyn_id_mark(id, &listens);
  if (running) dyn_bell_ring(&bell); /* there is a listener now */
  pthread_mutex_unlock(&dyn_speakers_lock);
}

struct dyn_fence *dyn_hosts_begin(const struct dyn_hosts_place *place, const struct dyn_root *root, dyn_hosts_logger log) {
  struct speaker *s = switched_off() ? NULL : aligned_alloc(64, (sizeof *s + 63) / 64 * 64);
  if (s == NULL) return NULL;
  memset(s, 0, sizeof *s);
  s->rank.place = *place;
  s->rank.place.nonce = root->nonce;
  s->rank.place.others = NULL;
  s->rank.send = send_to_hub;
  s->rank.hear = dyn_hosts_hear;
  s->rank.to = s;
  s->root = *root;
  s->wire = DYN_WIRE_NONE;
  s->beganNs = dyn_host_ns();
  s->log = log;
  watch_forks_once();
  pthread_mutex_lock(&dyn_speakers_lock);
  bool started = start();
  if (started) {
    s->next = dyn_speakers;
    dyn_speakers = s;
    dyn_bell_ring(&bell);
  }
  pthread_mutex_unlock(&dyn_speakers_lock);
  if (started) return &s->rank.fence;
  free(s);
  return NULL;
}
/* Another thread of the program's may be in the rank's call, and wait at the fence: the program aborts the communicator. */
void dyn_hosts_leave(struct dyn_fence *fence) {
  struct speaker *s = NULL;
  pthread_mutex_lock(&dyn_speakers_lock);
  for (struct speaker **at = &dyn_speakers; *at != NULL && s == NULL; at = &(*at)->next) {
    if (&(*at)->rank.fence != fence) continue;
    s = *at;
    *at = s->next;
    break;
  }
  if (s != NULL && s->spoke) dyn_hosts_rank_bye(&s->rank);
  if (s != NULL) dyn_wire_close(&s->wire);
  pthread_mutex_unlock(&dyn_speakers_lock);
  if (s == NULL) return;
  /* The others may take the plan that this rank has promised to take: who waits there must not run its call by another one. */
  uint64_t raised = dyn_fence_raised_at(fence);
  if (raised != 0) dyn_fence_lose(fence, raised);
  if (__atomic_load_n(&fence->waiting, __ATOMIC_SEQ_CST) == 0) free(s); /* else it is left: the process is about to end */
}
