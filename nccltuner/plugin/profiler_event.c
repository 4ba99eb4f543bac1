/* SPDX-License-Identifier: Apache-2.0
 *
 * Start, stop and state of events, in whatever order and from whatever threads they come: Coll starts in the user's
 * thread (or a CUDA callback), KernelCh and ProxyOp in the proxy thread, from 2.32 KernelCh in a thread of its own.
 *
 * An event that we want gets an object and a handle of ours, which carries the chained profiler's handle along. Any
 * other event gets the chained profiler's handle itself and is never looked at here.
 */
#include "profiler.h"

#include "chain.h"

static struct dyn_slot *pin_coll(const void *handle) {
  struct dyn_slot *slot = dyn_slot_pin(handle);
  if (slot == NULL || slot->kind == DYN_KIND_COLL) return slot;
  dyn_slot_unpin(slot, 0);
  return NULL;
}

static struct dyn_slot *start_kernel(struct dyn_context *context, const struct dyn_event *event) {
  struct dyn_slot *coll = pin_coll(event->parent);
  if (coll == NULL) return NULL;
  struct dyn_slot *slot = dyn_slot_new(context->process, coll->owner, DYN_KIND_KERNEL, 1);
  if (slot != NULL) {
    /* The clock costs as much as the rest of this call: only the first channel's news and host times need it. */
    int first = atomic_load_explicit(&coll->coll.kernelSeen, memory_order_relaxed) == 0;
    uint64_t now = first || coll->coll.hostTimed ? dyn_now_ns() : 0;
    slot->part.coll = (uintptr_t)event->parent;
    slot->part.channel = event->kernelCh.channel;
    slot->part.hostTimed = coll->coll.hostTimed;
    slot->part.start = coll->coll.hostTimed ? now : event->kernelCh.timer;
    if (first) {
      dyn_atomic_min(&coll->coll.kernelSeen, now);
      if (!coll->coll.hostTimed) atomic_store_explicit(&coll->coll.startClock, now - slot->part.start, memory_order_relaxed);
    }
  }
  dyn_slot_unpin(coll, 0);
  return slot;
}

static struct dyn_slot *start_proxy_op(struct dyn_context *context, const struct dyn_event *event) {
  /* PXN: another process's operation runs in our proxy; its parent is a handle of that process, nothing to us. */
  if (event->proxyOp.pid != dyn_own_pid()) return NULL;
  struct dyn_slot *coll = pin_coll(event->parent);
  if (coll == NULL) return NULL;
  struct dyn_slot *slot = dyn_slot_new(context->process, coll->owner, DYN_KIND_PROXY, 1);
  if (slot != NULL) {
    uint64_t now = dyn_now_ns();
    slot->part.coll = (uintptr_t)event->parent;
    slot->part.isSend = event->proxyOp.isSend;
    dyn_atomic_min(&coll->coll.firstOp, now);
    atomic_store_explicit(&coll->coll.touched, now, memory_order_relaxed);
    dyn_slot_ref(coll); /* open until it stops */
  }
  dyn_slot_unpin(coll, 0);
  return slot;
}

int dyn_event_start(void *contextHandle, void **handle, const struct dyn_event *event, const void *descr) {
  *handle = NULL;
  struct dyn_context *context = dyn_context_get(contextHandle);
  if (context == NULL) return 0;
  void *chain = context->chained ? dyn_chain_start(context, event, descr) : NULL;
  struct dyn_slot *slot = NULL;
  switch (event->type) {
    case ncclProfileGroupApi: /* says it first, for the whole group */
      if (event->api.captured) dyn_capture_note(context, 1);
      break;
    case ncclProfileP2pApi: dyn_capture_note(context, event->api.captured); break;
    case ncclProfileCollApi: {
      int kept = dyn_capture_note(context, event->api.captured);
      if (event->api.broadcast) dyn_broadcast_note(context);
      int want = event->api.captured ? 0 : dyn_wanted(context);
      if (want & ncclProfileKernelCh && !kept) want = 0; /* its channels would be waited for in vain */
      if (want) {
        uint64_t seq = context->comm == NULL ? 0 : __atomic_load_n(&context->comm->seq, __ATOMIC_RELAXED);
        if (context->comm != NULL && context->comm->ahead) seq--; /* it has counted before NCCL heard of it */
        if (chain == NULL) {
          *handle = dyn_api_handle(context, seq);
          return 0;
        }
        slot = dyn_slot_new(context->process, (uintptr_t)contextHandle, DYN_KIND_API, 1);
        if (slot != NULL) slot->api.minSeq = seq;
      }
      break;
    }
    case ncclProfileGroup:
      if (dyn_wanted(context)) slot = dyn_slot_new(context->process, (uintptr_t)contextHandle, DYN_KIND_GROUP, 1);
      break;
    case ncclProfileP2p: atomic_fetch_add_explicit(&context->works, 1, memory_order_relaxed); break;
    case ncclProfileColl:
      atomic_fetch_add_explicit(&context->works, 1, memory_order_relaxed);
      slot = dyn_coll_start(context, event);
      break;
    case ncclProfileKernelCh: slot = start_kernel(context, event); break;
    case ncclProfileProxyOp: slot = start_proxy_op(context, event); break;
    default: break;
  }
  if (slot == NULL) {
    *handle = chain;
    return 0;
  }
  slot->chain = chain;
  *handle = dyn_slot_handle(slot);
  dyn_slot_unpin(slot, 0);
  return 0;
}

static void stop_part(struct dyn_slot *slot) {
  struct dyn_slot *coll = pin_coll((void *)(uintptr_t)slot->part.coll);
  if (coll == NULL) return;
  int timed = slot->kind == DYN_KIND_KERNEL && !slot->part.hostTimed && coll->coll.expected != 0; /* and not awaited */
  uint64_t now = timed ? 0 : dyn_now_ns();
  unsigned drops = 1;
  if (slot->kind == DYN_KIND_KERNEL) {
    drops = dyn_coll_kernel(coll, slot->part.channel, slot->part.start,
                            slot->part.hostTimed ? now : atomic_load(&slot->part.stop), now);
  } else {
    dyn_atomic_max(slot->part.isSend ? &coll->coll.lastSend : &coll->coll.lastRecv, now);
    atomic_store_explicit(&coll->coll.touched, now, memory_order_relaxed);
  }
  dyn_slot_unpin(coll, drops);
}

int dyn_event_stop(void *handle) {
  if (handle == NULL) return 0;
  if (!dyn_handle_ours(handle)) {
    dyn_chain_stop(handle);
    return 0;
  }
  struct dyn_slot *slot = dyn_slot_pin(handle);
  if (slot == NULL) return 0;
  if (atomic_exchange(&slot->stopped, 1)) { /* NCCL stops some events twice */
    dyn_slot_unpin(slot, 0);
    return 0;
  }
  if (slot->chain != NULL) dyn_chain_stop(slot->chain);
  unsigned drops = 1;
  if (slot->kind == DYN_KIND_API) {
    dyn_slot_retire(slot); /* Coll events name it as their parent after its stop */
    drops = 0;
  } else if (slot->kind == DYN_KIND_KERNEL || slot->kind == DYN_KIND_PROXY) {
    stop_part(slot);
  }
  dyn_slot_unpin(slot, drops);
  return 0;
}

int dyn_event_state(void *handle, int state, void *args, uint64_t timer) {
  if (handle == NULL) return 0;
  if (!dyn_handle_ours(handle)) {
    dyn_chain_state(handle, state, args);
    return 0;
  }
  struct dyn_slot *slot = dyn_slot_pin(handle);
  if (slot == NULL) return 0;
  if (slot->kind == DYN_KIND_KERNEL && state == ncclProfilerKernelChStop) atomic_store(&slot->part.stop, timer);
  if (slot->chain != NULL) dyn_chain_state(slot->chain, state, args);
  dyn_slot_unpin(slot, 0);
  return 0;
}
