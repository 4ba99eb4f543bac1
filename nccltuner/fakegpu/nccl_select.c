/* SPDX-License-Identifier: Apache-2.0
 *
 * What runs a call on registered memory, or one that names what is to: as 2.32.3 does it on 2x H200 (kernels/bench/selections.cuh,
 * docs/figures). Names are prefixes, and name all that begin with them. Where there is a symmetric kernel NCCL takes one, also
 * where it is slower than a ring. There is no multicast here and no TMA, as there was none there.
 */
#include <strings.h>

#include "nccl_fake.h"

/* Of 2x H200, AllReduce; the other two have half as far to go. */
static const struct symmetric {
  const char *name, *event;
  int func;
  double startNs, nsPerByte;
} symmetrics[] = {
    {"SYMK_AGxLL_R", "AGxLL_R", FUNC_ALLREDUCE, 3500, 0.058},
    {"SYMK_RSxLD_AGxST", "RSxLD_AGxST", FUNC_ALLREDUCE, 7900, 0.0065},
    {"SYMK_LL", "LL", FUNC_ALLGATHER, 3500, 0.02},
    {"SYMK_ST", "ST", FUNC_ALLGATHER, 6800, 0.004},
    {"SYMK_LL", "LL", FUNC_REDUCESCATTER, 3500, 0.025},
    {"SYMK_LD", "LD", FUNC_REDUCESCATTER, 6200, 0.0045},
};
/* What it knows, and has not here. */
static const struct { const char *name; int func; } absent[] = {
    {"SYMK_AGxLLMC_R", FUNC_ALLREDUCE}, {"SYMK_RSxLDMC_AGxSTMC", FUNC_ALLREDUCE}, {"SYMK_RSxTmaLD_AGxTmaST", FUNC_ALLREDUCE},
    {"SYMK_LLMC", FUNC_ALLGATHER}, {"SYMK_STMC", FUNC_ALLGATHER}, {"SYMK_TmaST", FUNC_ALLGATHER}, {"SYMK_TmaSTMC", FUNC_ALLGATHER},
    {"SYMK_LDMC", FUNC_REDUCESCATTER}, {"SYMK_TmaLD", FUNC_REDUCESCATTER}, {"NVLS_SIMPLE", -1}, {"NVLSTREE_SIMPLE", FUNC_ALLREDUCE}};
static const char *const classics[2][NUM_PROTOS] = {{"TREE_LL", "TREE_LL128", "TREE_SIMPLE"}, {"RING_LL", "RING_LL128", "RING_SIMPLE"}};

static int begins(const char *name, const char *with) { return strncasecmp(name, with, strlen(with)) == 0; }

static int in_window(const struct ncclComm *comm, const void *at) {
  for (int i = 0; i < MAX_WINDOWS; i++) {
    const struct ncclWindow *w = &comm->windows[i];
    if (w->bytes > 0 && w->flags & 1 && (const char *)at >= w->at && (const char *)at < w->at + w->bytes) return 1;
  }
  return 0;
}

static int registered(const struct ncclComm *comm, const struct call *call) {
  return nccl_version() >= 23100 && comm->plan->nNodes == 1 && (call->func == FUNC_ALLGATHER || call->op == ncclSum) && in_window(comm, call->send) && in_window(comm, call->recv);
}

/* One buffer lies in a window and the other one does not, and of NCCL's device kernels only those of LL would do (ncclSymkPickKernel,
 * src/sym_kernels.cc, 2.29.2 to 2.30.7). */
static int half_registered(const struct ncclComm *comm, const struct call *call) {
  int send = in_window(comm, call->send), recv = in_window(comm, call->recv);
  if (nccl_version() < 22902 || comm->plan->nNodes != 1 || send == recv) return 0;
  if (call->func == FUNC_ALLGATHER) return send;
  if (call->func != FUNC_ALLREDUCE && (call->func != FUNC_REDUCESCATTER || send)) return 0;
  return call->op == ncclSum || (call->op == ncclAvg && nccl_version() >= 23003);
}

/* The cheaper of those that may. NULL: none. */
static const struct symmetric *symmetric_of(const struct call *call, const char *selection, uint64_t bytes, double *costNs) {
  const struct symmetric *best = NULL;
  for (size_t i = 0; i < sizeof symmetrics / sizeof *symmetrics; i++) {
    const struct symmetric *s = &symmetrics[i];
    if (s->func != call->func || (selection != NULL && !begins(s->name, selection))) continue;
    double ns = s->startNs + s->nsPerByte * (double)bytes;
    if (best != NULL && ns >= *costNs) continue;
    best = s;
    *costNs = ns;
  }
  return best;
}

/* Bits 3 * algorithm + protocol that a name means; a word that means nothing for the function: none. known: NCCL has the word. */
static uint32_t classics_of(int func, const char *selection, int *known) {
  uint32_t bits = 0;
  for (int a = ALGO_TREE; a <= ALGO_RING; a++)
    for (int p = 0; p < NUM_PROTOS; p++)
      if (begins(classics[a][p], selection) && (a == ALGO_RING || func == FUNC_ALLREDUCE)) bits |= 1u << (3 * a + p);
  *known = bits != 0;
  for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
    *known |= (absent[i].func == func || absent[i].func < 0) && begins(absent[i].name, selection);
  for (size_t i = 0; i < sizeof symmetrics / sizeof *symmetrics; i++) *known |= symmetrics[i].func == func && begins(symmetrics[i].name, selection);
  return bits;
}

ncclResult_t nccl_select(const struct ncclComm *comm, const struct call *call, uint64_t bytes, struct selected *out) {
  int known = 0, onWindows = registered(comm, call);
  const char *selection = call->selection != NULL && *call->selection != '\0' ? call->selection : NULL;
  uint32_t bits = selection == NULL ? 0 : classics_of(call->func, selection, &known);
  *out = (struct selected){0};
  if (selection != NULL && !known && call->force)
    return nccl_fail(ncclInvalidArgument, "config->algSelection \"%s\" cannot be honored for %s", selection, table_collective_name(call->func));
  const struct symmetric *s = onWindows ? symmetric_of(call, known ? selection : NULL, bytes, &out->costNs) : NULL;
  if (s == NULL && known && bits == 0) {
    if (call->force) return nccl_fail(ncclInvalidArgument, "algSelection names only symmetric kernel(s) that are unavailable for %s", table_collective_name(call->func));
    if (onWindows) s = symmetric_of(call, NULL, bytes, &out->costNs);
  }
  out->half = half_registered(comm, call);
  out->symmetric = s == NULL ? NULL : s->event;
  out->classics = s == NULL ? bits : 0;
  return 0;
}
