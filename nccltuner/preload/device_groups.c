/* SPDX-License-Identifier: Apache-2.0 */
#include "../plugin/named.h"
#include "bound.h"
#include "windows.h"

static __thread struct dyn_bound *grouped; /* that this thread's group has seen, by their numbers, which are alike on all ranks */
static pthread_mutex_t joining = PTHREAD_MUTEX_INITIALIZER;

void dyn_groups_forget(void) {
  grouped = NULL;
  joining = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static struct dyn_bound *in_group(const void *comm) {
  struct dyn_bound *b = dyn_bound_find(comm), **at = &grouped;
  if (b == NULL || b->group != NOTHING) return b;
  while (*at != NULL && (*at)->id <= b->id) at = &(*at)->next;
  b->beside.n = 0;
  b->next = *at;
  *at = b;
  return b;
}

static void make_plain(struct dyn_bound *b) {
  bool held = b->group == HELD;
  if (b->group == GIVEN) return; /* NCCL calls itself */
  b->group = PLAIN; /* before it goes on: NCCL may call itself through our names */
  if (held) dyn_forward(&b->held, 0);
}

bool dyn_device_hold(const struct dyn_request *request, int *result) {
  struct dyn_bound *b = dyn_bound_find(request->comm);
  if (b == NULL || b->revoked) return false;
  *result = dyn_call_gave_up(b) ? DYN_REMOTE_ERROR : DYN_SUCCESS;
  if (*result != DYN_SUCCESS) return true;
  b = in_group(request->comm); /* not before: the group has nothing of what is refused */
  bool first = b->group == NOTHING || b->group == SENDS;
  if (first && dyn_call_is_of_interest(b, &request->work) &&
      (dyn_call_counts(&request->work) || dyn_call_able(b, request, false) != 0)) {
    b->held = *request;
    b->hadWindows = dyn_windows_ever(b->windows);
    b->group = HELD;
    return true;
  }
  make_plain(b);
  return false;
}

void dyn_device_plain(void *comm) {
  struct dyn_bound *b = in_group(comm);
  if (b != NULL) make_plain(b);
}

void dyn_device_sends(void *comm, void *stream) {
  struct dyn_bound *b = in_group(comm);
  if (b == NULL) return;
  if (b->group == NOTHING) b->group = SENDS;
  if ((b->group == SENDS || b->group == HELD) && !dyn_beside_add(&b->beside, stream)) make_plain(b);
}

/* NCCL keeps an error for the group's end. */
static void give_held(struct dyn_bound *b) {
  const char *name = dyn_name_of(b->action);
  b->group = GIVEN;
  if (name != NULL) {
    struct dyn_timed *timed = dyn_grouped_timed(b->held.comm);
    b->config = dyn_named_config(name, false);
    if (timed != NULL) timed->sample.flags |= DYN_SAMPLE_WISHED;
  }
  struct dyn_passage passage;
  dyn_passage_enter(&passage, b->held.work.stream, b->held.comm, 0);
  dyn_passage_leave(&passage, name != NULL ? b->held.named(&b->held, &b->config) : b->held.forward(&b->held));
}

/* Inside of a passage, which knows whether the call goes into a CUDA graph. */
static uint32_t action_of_held(const struct dyn_bound *b) {
  struct dyn_passage passage;
  dyn_passage_enter(&passage, b->held.work.stream, b->held.comm, 0);
  uint32_t action = dyn_call_is_of_interest(b, &b->held.work) ? dyn_call_action(b, &b->held, b->hadWindows) : 0;
  dyn_passage_leave(&passage, DYN_SUCCESS);
  return action;
}

/* A call that is lost: another thread may have taken all away while it was said why. */
static void launch_held(struct dyn_bound *b) {
  b->group = BEGUN;
  b->result = DYN_REMOTE_ERROR;
  if (b->action == DYN_CHOSEN_LOST) return;
  b->result = dyn_beside_first(&b->beside, b->lsa, b->held.work.stream);
  if (b->result == DYN_SUCCESS) b->result = dyn_call_launch(b, &b->held, true, b->action, dyn_grouped_timed(b->held.comm));
  if (b->result == DYN_SUCCESS) b->result = dyn_beside_then(&b->beside, b->lsa, b->held.work.stream);
}

static void end_held(struct dyn_bound *b, bool simulated) {
  b->action = simulated ? 0 : dyn_call_gave_up(b) ? DYN_CHOSEN_LOST : action_of_held(b); /* others may run what this rank cannot any more */
  if (b->action == 0) make_plain(b);
  else if (dyn_call_is_nccls(b->action)) give_held(b);
  else launch_held(b);
}

void dyn_device_group_ends(bool simulated) {
  for (struct dyn_bound *b = grouped; b != NULL; b = b->next)
    if (b->group == HELD) end_held(b, simulated);
}

/* Whoever is told first does it, and nobody before it is done. */
int dyn_group_launched(struct dyn_bound *b) {
  int result = DYN_SUCCESS;
  if (!atomic_load(&b->joins)) return result;
  pthread_mutex_lock(&joining);
  if (atomic_load(&b->joins)) result = dyn_beside_first(&b->beside, b->lsa, b->held.work.stream);
  atomic_store(&b->joins, false);
  pthread_mutex_unlock(&joining);
  return result;
}

int dyn_device_group_ended(int result) {
  for (struct dyn_bound *b = grouped; b != NULL; b = b->next) {
    if (b->group == BEGUN && result == DYN_SUCCESS) result = b->result;
    b->joins = b->group == BEGUN && b->beside.n > 0 && dyn_call_stays(b, &b->held);
    if (result != DYN_IN_PROGRESS && dyn_group_launched(b) != DYN_SUCCESS) result = DYN_UNHANDLED_CUDA_ERROR;
    if (b->group == GIVEN) dyn_call_over(b, &b->held);
    if (b->finalized && result == DYN_SUCCESS) dyn_lsa_wait(b->lsa);
    b->group = NOTHING;
  }
  grouped = NULL;
  return result;
}

void dyn_group_leave(struct dyn_bound *b) {
  struct dyn_bound **at = &grouped;
  while (*at != NULL && *at != b) at = &(*at)->next;
  if (*at == NULL) return;
  make_plain(b);
  *at = b->next;
  b->group = NOTHING;
}
