/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of the program's calls makes the communicator that the plugin meets. NCCL calls the plugin inside of the call, behind
 * the end of the group around it, or in a thread of its own; what it says there is how many ranks the communicator has and
 * which this one is. So all calls that are making one, of all threads, stand in a list, and if one alone can be meant it is.
 *
 * A communicator that does not block may still be made when its call has returned: it stays in the list, so that it is not taken
 * for another one, and no call is known to make it but for what is told of it by its handle (gathers.h).
 */
#include "device.h"
#include "gathers.h"

#include <string.h>

#include "../hosts/samples.h"

#define MOST 128
#define LEFT_NAPS 1000 /* of 0.1 ms */

enum { SUCCESS = 0, IN_PROGRESS = 7 }; /* ncclResult_t */

static struct making {
  bool used;
  const void *thread; /* whose call it is; NULL: it has returned */
  void **comm;        /* where the call leaves it */
  void *left;         /* what it had left there when it returned: behind that, in a group, the place may be another one's. NULL: nothing */
  bool returned;
  bool alone; /* in no group: what it leaves when it returns is it */
  const void *late;   /* what it has left there, or else its parent, which tells as well; NULL: it has not returned */
  const void *parent; /* NULL: none */
  struct dyn_root root; /* where its ranks meet; nonce 0: not known */
  int nRanks, rank;   /* negative: not known */
  struct dyn_says says; /* its config */
  bool configured;    /* that is settled: its own, or, without a config, its parent's */
  struct dyn_bound *bound; /* NULL: the plugin has not met it */
  struct dyn_gathers *gathers; /* NULL: likewise */
  void *chooser;
  void (*now)(void *chooser);
} makings[MOST];
static unsigned unlisted; /* calls that found no room */
static atomic_uint late;  /* in the list behind their calls: most programs have none */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread unsigned own, ownUnlisted; /* of this thread; the address of the first one names it */

/* The child of a fork makes nothing yet, whatever its parent's threads were doing. */
static void forget_all(void) {
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  memset(makings, 0, sizeof makings);
  unlisted = own = ownUnlisted = 0;
  atomic_store(&late, 0);
}
/* Not in every process under the library: its forks would all pay. */
static void watch(void) { pthread_atfork(NULL, NULL, forget_all); }

/* Of communicators that the program has: their children meet there, too. */
static struct made {
  const void *comm; /* NULL: free */
  struct dyn_root root;
  struct dyn_says says;
} made[MOST];

static void *comm_of(const struct making *m) { return m->left != NULL ? m->left : __atomic_load_n(m->comm, __ATOMIC_ACQUIRE); } /* NCCL's thread may be leaving it */

/* Also before NCCL has left it there: as the plugin was told where NCCL keeps its context (gathers.h). NULL: not known yet. */
static void *known_comm(const struct making *m) {
  void *comm = comm_of(m);
  return comm == NULL && m->gathers != NULL ? (void *)(uintptr_t)dyn_gathers_comm(m->gathers) : comm;
}

static struct dyn_root root_of(const void *id, const void *parent) {
  struct dyn_root root = {0};
  if (id != NULL && dyn_id_read(id, &root)) return root;
  for (int i = 0; i < MOST && id == NULL && parent != NULL; i++)
    if (made[i].comm == parent) root = made[i].root;
  return root;
}

static struct dyn_says config_of(const void *parent) {
  for (int i = 0; i < MOST && parent != NULL; i++)
    if (made[i].comm == parent) return made[i].says;
  return (struct dyn_says){0};
}

/* Where there is no room its children run plain NCCL over several hosts. */
static void remember(const void *comm, const struct dyn_root *root, struct dyn_says says) {
  if (comm == NULL || (root->nonce == 0 && says.maxCTAs == 0 && !says.noCTAs && !says.graphsAlone)) return;
  for (int i = 0; i < MOST; i++)
    if (made[i].comm == NULL || made[i].comm == comm) {
      made[i] = (struct made){comm, *root, says};
      return;
    }
}

void dyn_making_begins(void **comm, int nRanks, int rank, const void *id, const void *parent) {
  static pthread_once_t watched = PTHREAD_ONCE_INIT;
  int i = 0;
  pthread_once(&watched, watch);
  pthread_mutex_lock(&lock);
  while (i < MOST && makings[i].used) i++;
  if (i < MOST) makings[i] = (struct making){.used = true, .thread = &own, .comm = comm, .alone = !dyn_in_group(), .nRanks = nRanks, .rank = rank, .parent = parent, .root = root_of(id, parent), .says = config_of(parent)};
  unlisted += i == MOST;
  pthread_mutex_unlock(&lock);
  own += i < MOST;
  ownUnlisted += i == MOST;
}

void dyn_making_returns(int result) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST; i++) {
    struct making *m = &makings[i];
    if (!m->used || m->thread != &own || m->returned) continue;
    m->returned = true;
    if (result == SUCCESS || result == IN_PROGRESS) m->left = __atomic_load_n(m->comm, __ATOMIC_ACQUIRE);
  }
  pthread_mutex_unlock(&lock);
}

static bool may_be_of(const struct making *m, uint32_t nRanks, uint32_t rank) {
  return m->used && (m->nRanks < 0 || (uint32_t)m->nRanks == nRanks) && (m->rank < 0 || (uint32_t)m->rank == rank);
}
static bool is_unbound(const struct making *m) { return m->bound == NULL; }
static bool is_untold(const struct making *m) { return m->gathers == NULL; }

/* Under lock. The only call under way that may be meant, of those that are open yet; NULL: there is none, or several (any). */
static struct making *only(uint32_t nRanks, uint32_t rank, bool (*is_open)(const struct making *m), bool *any) {
  struct making *found = NULL;
  unsigned candidates = 0;
  for (int i = 0; i < MOST; i++) {
    if (!may_be_of(&makings[i], nRanks, rank) || !is_open(&makings[i])) continue;
    found = &makings[i];
    candidates++;
  }
  *any = candidates + unlisted > 0;
  return candidates == 1 && unlisted == 0 ? found : NULL;
}

/* Under lock. All that may be meant say so. */
static bool graphs_alone(uint32_t nRanks, uint32_t rank) {
  bool any = false, all = unlisted == 0;
  for (int i = 0; i < MOST; i++) {
    if (!may_be_of(&makings[i], nRanks, rank)) continue;
    any = true;
    all &= makings[i].says.graphsAlone;
  }
  return any && all;
}

bool dyn_making_expect(struct dyn_lsa *lsa, void *chooser, dyn_choose_function choose, void (*now)(void *chooser)) {
  bool any;
  pthread_mutex_lock(&lock);
  dyn_lsa_graphs(lsa, graphs_alone(dyn_lsa_ranks(lsa), dyn_lsa_rank(lsa)));
  struct making *found = only(dyn_lsa_ranks(lsa), dyn_lsa_rank(lsa), is_unbound, &any);
  struct dyn_bound *bound = found != NULL && found->late == NULL ? dyn_bound_reserve(lsa, chooser, choose) : NULL;
  if (bound != NULL) {
    found->bound = bound;
    found->chooser = chooser;
    found->now = now;
  }
  pthread_mutex_unlock(&lock);
  return bound != NULL;
}

/* What a call of ncclCommInitRank and its like makes it leaves in its place at once, before there is a plugin for it, and also where it does not
 * block; what a split makes it leaves when that is made. What no call makes is one whose calls go past this library, too, where a call that
 * failed has left its announcement over. */
struct dyn_gathers *dyn_making_gathers(const void *inside, uint32_t nRanks, uint32_t rank) {
  bool any;
  pthread_mutex_lock(&lock);
  struct making *found = only(nRanks, rank, is_untold, &any);
  const void *comm = any ? dyn_gathers_around(inside, found == NULL ? NULL : found->returned ? found->left : comm_of(found)) : NULL;
  struct dyn_gathers *of = comm != NULL ? dyn_gathers_take(comm) : NULL;
  if (of != NULL) of->inThread = own > 0;
  if (of != NULL && found != NULL) found->gathers = of;
  pthread_mutex_unlock(&lock);
  return of;
}

/* Its place may be another one's from here on, and the call that made it may yet fail, which was told. */
void dyn_making_gathers_over(struct dyn_gathers *of) {
  static struct dyn_gathers none;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST; i++)
    if (makings[i].used && makings[i].gathers == of) makings[i].gathers = &none;
  dyn_gathers_over(of);
  pthread_mutex_unlock(&lock);
}

/* Whichever of the calls makes it, if all that may have one root. */
static bool find_root(uint32_t nRanks, uint32_t rank, struct dyn_root *root) {
  bool found = false, same = true;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST; i++) {
    if (!may_be_of(&makings[i], nRanks, rank)) continue;
    same &= !found || memcmp(root, &makings[i].root, sizeof *root) == 0;
    *root = makings[i].root;
    found = true;
  }
  same &= unlisted == 0;
  pthread_mutex_unlock(&lock);
  return found && same && root->nonce != 0;
}

/* Not waited for: a driver may keep the round. */
static struct dyn_ring *hold_ring(void) {
  if (pthread_mutex_trylock(&dynamiccl_preload.roundLock) != 0) return NULL;
  struct dyn_ring *ring = dynamiccl_preload.ring;
  if (ring == NULL) pthread_mutex_unlock(&dynamiccl_preload.roundLock);
  return ring;
}
static void release_ring(void) { pthread_mutex_unlock(&dynamiccl_preload.roundLock); }

struct dyn_fence *dyn_making_hosts(const struct dyn_hosts_place *place, dyn_hosts_logger log) {
  struct dyn_root root;
  dyn_hosts_samples_at(hold_ring, release_ring);
  return find_root(place->nRanks, place->rank, &root) ? dyn_hosts_begin(place, &root, log) : NULL;
}

/* What this thread's call makes: all before it in its group is settled. */
static void configure(const struct dyn_says *says) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST; i++) {
    if (!makings[i].used || makings[i].thread != &own || makings[i].configured) continue;
    if (says != NULL) makings[i].says = *says;
    makings[i].configured = true;
  }
  pthread_mutex_unlock(&lock);
}

void dyn_making_bounds(struct dyn_says says) { configure(&says); }
void dyn_making_inherits(void) { configure(NULL); }

uint32_t dyn_making_ctas(uint32_t nRanks, uint32_t rank) {
  int least = 0;
  bool none = false;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST; i++) {
    if (!may_be_of(&makings[i], nRanks, rank)) continue;
    int most = makings[i].says.maxCTAs;
    if (most > 0 && (least == 0 || most < least)) least = most;
    none |= makings[i].says.noCTAs;
  }
  pthread_mutex_unlock(&lock);
  return (uint32_t)least | (none ? DYN_NO_CTAS : 0);
}

/* Of several in one thread one is made behind the other, and what waits for other ranks in between waits for ever. */
bool dyn_making_alone(const struct dyn_lsa *lsa) {
  const void *thread = NULL;
  unsigned ofThread = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST; i++)
    if (makings[i].used && makings[i].bound != NULL && dyn_bound_lsa(makings[i].bound) == lsa) thread = makings[i].thread;
  for (int i = 0; i < MOST; i++) ofThread += makings[i].used && makings[i].thread == thread;
  pthread_mutex_unlock(&lock);
  return thread != NULL && ofThread == 1;
}

void dyn_making_forget(const struct dyn_bound *bound) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST; i++)
    if (makings[i].used && makings[i].bound == bound) makings[i].bound = NULL;
  pthread_mutex_unlock(&lock);
}

/* ---- of one rank ---- */

#define LONE 8
static struct {
  atomic_uintptr_t comms[LONE]; /* 0: free */
} lone __attribute__((aligned(64)));

bool dyn_lone_has(const void *comm) {
  for (int i = 0; i < LONE && comm != NULL; i++)
    if (atomic_load_explicit(&lone.comms[i], memory_order_relaxed) == (uintptr_t)comm) return true;
  return false;
}

void dyn_lone_set(const void *comm, int nRanks) {
  bool is = nRanks == 1;
  if (comm == NULL || (!is && atomic_load(&dynamiccl_preload.lone) == 0)) return;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < LONE; i++) {
    uintptr_t at = atomic_load(&lone.comms[i]);
    if (at != (uintptr_t)comm && (at != 0 || !is)) continue;
    atomic_store(&lone.comms[i], is ? (uintptr_t)comm : 0);
    atomic_fetch_add(&dynamiccl_preload.lone, (int)is - (at != 0));
    is = false; /* behind its first place it has none */
  }
  pthread_mutex_unlock(&lock);
}

/* Of children nobody has said it. 0: NCCL does not tell. */
static int ranks_of(const void *comm, int known) {
  static dyn_real cache;
  int (*count)(const void *, int *) = known > 0 ? NULL : (int (*)(const void *, int *))dyn_find(&cache, "ncclCommCount", NULL, NULL);
  return known > 0 ? known : count != NULL && count(comm, &known) == SUCCESS ? known : 0;
}

/* Takes one of this thread's out of the list, unless it stays there. */
static struct making take(int result) {
  struct making it = {0};
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST && !it.used; i++) {
    struct making *m = &makings[i];
    if (!m->used || m->thread != &own) continue;
    it = *m;
    void *left = result == IN_PROGRESS ? comm_of(m) : NULL;
    if (result == IN_PROGRESS && (m->bound == NULL || known_comm(m) == NULL)) m->late = left != NULL ? left : m->parent;
    m->used = m->late != NULL;
    m->thread = NULL;
    atomic_fetch_add(&late, m->used);
    if (result == SUCCESS || result == IN_PROGRESS) remember(comm_of(m), &m->root, m->says);
    else if (m->gathers != NULL) dyn_gathers_lost(m->gathers);
    if (result == SUCCESS && m->alone && m->gathers != NULL) dyn_gathers_made(m->gathers, m->left);
  }
  pthread_mutex_unlock(&lock);
  return it;
}

/* Under lock. */
static void leave(struct making *m) {
  m->used = false;
  atomic_fetch_sub(&late, 1);
}

void dyn_making_over(const void *comm, bool isMade) {
  bool found = false;
  int rank = 0;
  if (atomic_load(&late) == 0 || comm == NULL) return;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST; i++) {
    if (!makings[i].used || makings[i].late != comm) continue;
    if (!found) rank = makings[i].rank;
    found = true;
    if (makings[i].bound != NULL) dyn_bound_fill(makings[i].bound, isMade ? known_comm(&makings[i]) : NULL);
    leave(&makings[i]);
  }
  pthread_mutex_unlock(&lock);
  if (found && isMade) dyn_plugin_look(rank);
}

void dyn_making_gone(const void *comm) {
  dyn_making_over(comm, false);
  if (comm == NULL) return;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST; i++)
    if (made[i].comm == comm) made[i].comm = NULL;
  pthread_mutex_unlock(&lock);
}

/* The plugin has met it, and so the other ranks count on its kernels: that the call returned before NCCL's thread has left it in its place is no
 * reason to run without. If it cannot be known which it is, that is told when NCCL says that it is made (dyn_making_over): a program has to ask
 * for that before it uses it. For one that only looks into the place the call waits a moment: NCCL's thread is all but done. */
static bool comes_late(const struct making *it) {
  bool waits = false;
  for (int naps = 0; naps < LEFT_NAPS && known_comm(it) == NULL; naps++) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST; i++) {
    if (!makings[i].used || makings[i].bound != it->bound) continue;
    waits = known_comm(it) == NULL;
    if (!waits) leave(&makings[i]);
  }
  pthread_mutex_unlock(&lock);
  return waits;
}

static void finish(const struct making *it, int result) {
  if (result == IN_PROGRESS && comes_late(it)) return;
  void *comm = result == SUCCESS || result == IN_PROGRESS ? known_comm(it) : NULL;
  dyn_bound_fill(it->bound, comm);
  if (comm == NULL || result != SUCCESS) return;
  struct dyn_passage passage;
  dyn_passage_enter(&passage, NULL, comm, 0);
  it->now(it->chooser);
  dyn_passage_leave(&passage, SUCCESS);
}

void dyn_making_ends(int result) {
  for (; own > 0; own--) {
    struct making it = take(result);
    if (it.used && result == SUCCESS) dyn_lone_set(comm_of(&it), ranks_of(comm_of(&it), it.nRanks));
    if (result == SUCCESS) dyn_plugin_look(it.rank);
    if (it.bound != NULL) finish(&it, result);
  }
  if (ownUnlisted == 0) return;
  pthread_mutex_lock(&lock);
  unlisted -= ownUnlisted;
  pthread_mutex_unlock(&lock);
  ownUnlisted = 0;
}
