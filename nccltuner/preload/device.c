/* SPDX-License-Identifier: Apache-2.0 */
#include "../plugin/named.h"
#include "bound.h"
#include "windows.h"

/* What runs ends at once when it is stopped. What stands behind a call that NCCL has yet to abort, of this communicator or another, does not
 * begin before that; its memory stays. */
#define ABORT_NS UINT64_C(200000000)

#define REVOKED "the program revoked the communicator"

/* ---- calls ---- */

/* As NCCL sees it, by the addresses alone (windows.h). An AllToAll it makes of sends and receives, whose buffers may lie in windows on
 * some ranks alone: so all of a communicator that has had a window before count so, which nobody has to promise. */
static bool registered(const struct dyn_bound *b, const struct dyn_work *work, bool hadWindows) {
  if (dyn_call_counts(work)) return hadWindows;
  return work->count > 0 && dyn_windows_any(b->windows) && dyn_windows_matter(work->collective, work->op, work->datatype) &&
         dyn_window_of(b->windows, work->send, 0, NULL) && dyn_window_of(b->windows, work->recv, 0, NULL);
}

uint32_t dyn_call_able(const struct dyn_bound *b, const struct dyn_request *request, bool hadWindows) {
  struct dyn_work look = request->work;
  struct dyn_buffers in;
  uint32_t able = dyn_lsa_able(b->lsa, &look);
  if (able & 1u << DYN_KERNEL_DIRECT && dyn_windowed_find(b->windows, &look, dyn_lsa_ranks(b->lsa), &in)) able |= DYN_ABLE_WINDOWS;
  return able | (registered(b, &request->work, hadWindows) ? DYN_ABLE_REGISTERED : 0);
}

static DYN_HOT uint32_t ask(const struct dyn_bound *b, const struct dyn_work *work, uint32_t able) {
  return b->choose(b->chooser, work->collective, dyn_work_bytes(work, dyn_lsa_ranks(b->lsa)), able);
}

bool dyn_call_is_of_interest(const struct dyn_bound *b, const struct dyn_work *work) {
  return dyn_call_counts(work) || dyn_windows_any(b->windows) || ask(b, work, DYN_ABLE_LOOK) != 0;
}

DYN_HOT uint32_t dyn_call_action(const struct dyn_bound *b, const struct dyn_request *request, bool hadWindows) {
  uint32_t able = dyn_call_able(b, request, hadWindows);
  return able == 0 && !dyn_call_counts(&request->work) ? 0 : ask(b, &request->work, able);
}

int dyn_call_launch(const struct dyn_bound *b, const struct dyn_request *request, bool perhapsCaptured, uint32_t action, struct dyn_timed *timed) {
  struct dyn_work work = request->work;
  struct dyn_buffers in;
  unsigned ctas = 0;
  if (action == DYN_CHOSEN_LOST) return DYN_REMOTE_ERROR;
  work.perhapsCaptured = perhapsCaptured;
  if (dyn_is_direct(action)) dyn_windowed_find(b->windows, &work, dyn_lsa_ranks(b->lsa), &in);
  bool told = timed != NULL && timed->asked == 1; /* else nothing comes of its times */
  int result = dyn_lsa_launch(b->lsa, &work, action, &ctas, told ? &timed->timing : NULL);
  if (result == DYN_SUCCESS) dyn_intercepted_kernel(request->counted);
  if (timed != NULL) timed->sample.channels = (uint8_t)ctas;
  return result;
}

bool dyn_call_stays(const struct dyn_bound *b, const struct dyn_request *request) { return atomic_load(&b->comm) == (uintptr_t)request->comm; }

void dyn_call_over(const struct dyn_bound *b, const struct dyn_request *request) {
  if (dyn_call_stays(b, request)) ask(b, &request->work, DYN_ABLE_OVER);
}

/* To NCCL, as chosen. What is refused was not timed. */
static int give(const struct dyn_bound *b, const struct dyn_request *request, bool perhapsCaptured, uint32_t action) {
  const char *name = dyn_name_of(action);
  if (name == NULL) return request->forward(request);
  struct dyn_coll_config config = dyn_named_config(name, !perhapsCaptured);
  int result = request->named(request, &config);
  if (perhapsCaptured || result != DYN_INVALID_ARGUMENT || !dyn_call_stays(b, request)) return result;
  ask(b, &request->work, DYN_ABLE_REFUSED);
  if (dyn_this_call()->timed != NULL) dyn_this_call()->timed->asked = 0;
  return request->forward(request);
}

bool dyn_call_gave_up(const struct dyn_bound *b) {
  if (!dyn_lsa_gave_up(b->lsa)) return false;
  dyn_lsa_complain(b->lsa);
  return true;
}

DYN_HOT bool dyn_device_run(const struct dyn_request *request, bool perhapsCaptured, int *result) {
  const struct dyn_bound *b = dyn_bound_find(request->comm);
  if (b == NULL || b->revoked) return false; /* NCCL refuses it */
  if (dyn_call_gave_up(b)) {
    *result = DYN_REMOTE_ERROR;
    return true;
  }
  uint32_t action = dyn_call_is_of_interest(b, &request->work) ? dyn_call_action(b, request, dyn_windows_ever(b->windows)) : 0;
  if (action == 0) return false;
  *result = dyn_call_is_nccls(action) ? give(b, request, perhapsCaptured, action) : dyn_call_launch(b, request, perhapsCaptured, action, dyn_this_call()->timed);
  if (dyn_call_is_nccls(action)) dyn_call_over(b, request);
  return true;
}

bool dyn_device_has(const void *comm) {
  const struct dyn_bound *b = dyn_bound_find(comm);
  return b != NULL && dyn_lsa_near(b->lsa);
}

/* In a group it could not take its place among the calls that are held back. */
int dyn_device_rms_norm(void *comm, const struct dyn_norm *norm) {
  const struct dyn_bound *b = dyn_bound_find(comm);
  if (b == NULL || dyn_in_group()) return DYN_INVALID_USAGE;
  return dyn_call_gave_up(b) ? DYN_REMOTE_ERROR : dyn_lsa_rms_norm(b->lsa, norm);
}

bool dyn_device_can_exchange(const void *comm, int path) {
  const struct dyn_bound *b = dyn_bound_find(comm);
  return b != NULL && dyn_lsa_can_exchange(b->lsa, path);
}

int dyn_device_exchange(void *comm, const struct dyn_exchange *exchange) {
  const struct dyn_bound *b = dyn_bound_find(comm);
  struct dyn_exchange x = *exchange;
  struct dyn_windowed in;
  if (b == NULL || dyn_in_group()) return DYN_INVALID_USAGE;
  if (dyn_windows_any(b->windows) && dyn_windowed_of(b->windows, x.recv, dyn_exchange_bytes(b->lsa, &x), &in)) x.recvWindow = &in;
  return dyn_call_gave_up(b) ? DYN_REMOTE_ERROR : dyn_lsa_exchange(b->lsa, &x);
}

/* ---- the end ---- */

void dyn_device_finalizes(void *comm) {
  if (dyn_in_group()) dyn_device_plain(comm); /* and so its end knows of it */
}

/* NCCL waits for its own calls alone. */
void dyn_device_finalized(void *comm, bool over) {
  struct dyn_bound *b = dyn_bound_find(comm);
  if (b == NULL) return;
  b->finalized = true;
  if (over && !dyn_in_group()) dyn_lsa_wait(b->lsa);
}

void dyn_device_goes(void *comm, bool aborted) {
  struct dyn_bound *b = dyn_bound_find(comm);
  if (b == NULL) return;
  dyn_group_leave(b);
  if (aborted) dyn_lsa_stop(b->lsa, "the program aborted the communicator");
  else dyn_lsa_wait(b->lsa); /* which another thread's abort ends */
  if (dyn_bound_find(comm) != b || atomic_exchange(&b->goes, true)) return;
  if (aborted) dyn_lsa_settle(b->lsa, ABORT_NS);
  dyn_gin_destroy(b->lsa);
  dyn_bound_free(b->lsa);
}

void dyn_device_stops(void *comm, const char *why) {
  struct dyn_bound *b = dyn_bound_find(comm);
  if (b == NULL) return;
  b->stopped = true;
  dyn_lsa_stop(b->lsa, why);
}

/* Behind ncclCommFinalize NCCL refuses it. */
void dyn_device_revokes(void *comm) {
  const struct dyn_bound *b = dyn_bound_find(comm);
  if (b != NULL && !b->finalized) dyn_device_stops(comm, REVOKED);
}

void dyn_device_revoked(void *comm) {
  struct dyn_bound *b = dyn_bound_find(comm);
  if (b == NULL) return;
  dyn_device_stops(comm, REVOKED); /* with flags that we do not know */
  b->revoked = true;
}

bool dyn_device_peers(const void *comm, void *window, const void *at, uint64_t bytes, struct dyn_peers *peers) {
  const struct dyn_bound *b = dyn_bound_find(comm);
  return b != NULL && dyn_lsa_near(b->lsa) && dyn_peers_of(window, at, bytes, dyn_lsa_ranks(b->lsa), dyn_lsa_rank(b->lsa), peers);
}

int dyn_device_error(void *comm) {
  struct dyn_bound *b = dyn_bound_find(comm);
  if (b == NULL || b->stopped) return DYN_SUCCESS;
  dyn_group_launched(b);
  return dyn_lsa_missed(b->lsa) ? DYN_REMOTE_ERROR : b->finalized && !dyn_lsa_settle(b->lsa, 0) ? DYN_IN_PROGRESS : DYN_SUCCESS;
}
