/* SPDX-License-Identifier: Apache-2.0
 *
 * How much GPU memory the communicators of a process have for scratch, what of it waits for later ones, and what has stayed behind. All that was
 * made stands in one list; what is in a CUDA context counts there, so one that the program resets gives it back by itself: the next one of that
 * GPU has another number.
 *
 * Nothing that peers may have opened is given back to CUDA. Nobody hears when they have closed it, and to free it before is undefined
 * (cuIpcOpenMemHandle); and cuMemFree waits for all that is on the GPU, which may be a kernel that waits for a rank which is making this very
 * communicator and waits for this one. What is spare need not be freed, either: it is as large as what the next communicator of its context wants,
 * which takes it before it asks for more.
 */
#include "../carrier/expected.h"
#include "lsa.h"

#include <pthread.h>

#define MIB ((size_t)1 << 20)
#define DEFAULT_TOTAL_MIB 512
#define MOST_TOTAL_MIB 65536
#define MOST_ABANDONED 16

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct scratch *all; /* under lock */
static unsigned abandoned;  /* under lock: communicators whose memory stays behind them for ever */

/* The child of a fork has none of its parent's memory, whatever its parent's threads were doing. */
static void forget(void) {
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  all = NULL;
  abandoned = 0;
}
static void watch_forks(void) { pthread_atfork(NULL, NULL, forget); }

static bool is_free(const struct scratch *s) { return s->spare && atomic_load(&s->graphs) == 0; }

/* Under lock. MiB that a context's communicators have; what went with an earlier one of the same GPU is struck off. */
static size_t taken(dyn_context context, unsigned long long id) {
  size_t mib = 0;
  for (struct scratch **at = &all; *at != NULL;) {
    struct scratch *s = *at;
    if (s->context == context && s->contextId != id) {
      *at = s->next;
      if (is_free(s)) free(s); /* else a communicator that nobody has destroyed yet has it, or CUDA tells it of graphs */
      continue;
    }
    if (s->context == context) mib += s->bytes / MIB;
    at = &s->next;
  }
  return mib;
}

/* Where one communicator alone is given more than that, it has it. */
static size_t most_mib(size_t mib) {
  return dyn_setting("DYNAMICCL_SCRATCH_TOTAL_MIB", 1, MOST_TOTAL_MIB, mib > DEFAULT_TOTAL_MIB ? mib : DEFAULT_TOTAL_MIB);
}

/* Counted before it is made: another thread may make some meanwhile. What comes on top of whole MiB are the first pages of lanes. */
bool dyn_room_take(struct scratch *s) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  static bool said; /* under lock */
  size_t mib = s->bytes / MIB, most = mib > 0 ? most_mib(mib) : 0;
  pthread_once(&once, watch_forks);
  pthread_mutex_lock(&lock);
  size_t has = taken(s->context, s->contextId);
  bool fits = mib == 0 || has + mib <= most, says = !fits && !said;
  if (fits) {
    s->next = all;
    all = s;
  }
  said |= says;
  pthread_mutex_unlock(&lock);
  if (says)
    dyn_host_say("communicators of this process have %zu MiB of scratch memory on this GPU, and %zu more would be over DYNAMICCL_SCRATCH_TOTAL_MIB (%zu): "
                 "no device kernels for this communicator and others that find no room, NCCL runs their calls; `dynamiccld run --scratch-total-mib` takes "
                 "more, DYNAMICCL_SCRATCH_MIB less for each", has, mib, most);
  return fits;
}

void dyn_room_give(const struct scratch *s) {
  pthread_mutex_lock(&lock);
  for (struct scratch **at = &all; *at != NULL; at = &(*at)->next) {
    if (*at != s) continue;
    *at = s->next;
    break;
  }
  pthread_mutex_unlock(&lock);
}

/* Under lock, in that context. What GIN left for graphs that are gone is told so: the carrier has room for another. */
static void give_places(dyn_context context, unsigned long long id) {
  for (struct scratch *s = all; s != NULL; s = s->next) {
    if (s->left == NULL || !is_free(s) || s->context != context || s->contextId != id) continue;
    __atomic_store_n(s->left, DYN_EXPECTED_NOTHING, __ATOMIC_RELEASE);
    s->left = NULL;
  }
}

struct scratch *dyn_room_spare(dyn_context context, unsigned long long id, size_t bytes) {
  pthread_mutex_lock(&lock);
  give_places(context, id);
  struct scratch *s = all;
  while (s != NULL && !(is_free(s) && s->context == context && s->contextId == id && s->bytes == bytes)) s = s->next;
  if (s != NULL) s->spare = false;
  pthread_mutex_unlock(&lock);
  return s;
}

void dyn_room_keep(struct scratch *s) {
  pthread_mutex_lock(&lock);
  s->spare = true;
  pthread_mutex_unlock(&lock);
}

void dyn_room_abandon(void) {
  pthread_mutex_lock(&lock);
  abandoned++;
  pthread_mutex_unlock(&lock);
}

/* A program that aborts communicators for months, or captures graphs on each, is not to run out of memory by it. */
bool dyn_room_may_abandon(void) {
  static bool said; /* under lock */
  pthread_mutex_lock(&lock);
  unsigned n = abandoned;
  for (const struct scratch *s = all; s != NULL; s = s->next) n += s->spare && !is_free(s);
  bool may = n < MOST_ABANDONED, says = !may && !said;
  said |= !may;
  pthread_mutex_unlock(&lock);
  if (says)
    dyn_host_say("memory of %d communicators has stayed behind them, since they were aborted, or their calls captured in CUDA graphs, which were "
                 "still there and may be replayed: no device kernels for further ones of this process, NCCL runs their calls", MOST_ABANDONED);
  return may;
}
