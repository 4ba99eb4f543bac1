/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels ask of GIN, on a block's context, which others may share; test/gin_test.cc has the same for threads of a CPU.
 *
 * All is written for single threads (ncclCoopThread), which is what NCCL recommends, and nothing of it waits for a peer, with
 * two exceptions that lie in NCCL: a put into a full queue waits for room, which kernels here never fill (they put once a peer
 * and block, then wait), and a flush waits for the puts before it, so it comes only where their signals are there.
 */
#ifndef DYN_GIN_NET_CUH
#define DYN_GIN_NET_CUH

/* What is granted is Proxy or GDAKI (host/gin_versions.c); the code of others would make the kernels of 2.32.3 twice as large. */
#define NCCL_GIN_GPI_ENABLE 0
#define NCCL_GIN_EFA_GDA_ENABLE 0
#include <nccl.h>
#include <nccl_device.h>

#include "calls.cuh"

namespace dyn {

/* What waits count on is that a signal stands behind all puts before it: a strong one, which until 2.30.4 every one was. All are
 * SignalAdd, also of one: NCCL forbids SignalInc on a signal that is ever raised by more. */
#if NCCL_VERSION_CODE >= 23005
using GinSignalAdd = ncclGin_StrongSignalAdd;
using GinCounterInc = ncclGin_WeakCounterInc;
/* A handle is of a connection, with its contexts one behind the other. */
__device__ __forceinline__ int ginPlaceOf(const ncclGinCtx &ctx) { return (int)ctx.contextId; }
#else
using GinSignalAdd = ncclGin_SignalAdd;
using GinCounterInc = ncclGin_CounterInc;
__device__ __forceinline__ int ginPlaceOf(const ncclGinCtx &) { return 0; }
#endif

/* Entries of a context's queue to a peer, by backend, from where NCCL's own device code looks for room: a power of two. A put with
 * a signal takes two of GDAKI's and one of Proxy's. */
template <ncclNetDeviceType backend>
struct GinDepth;
template <>
struct GinDepth<NCCL_NET_DEVICE_GIN_PROXY> {
  static __device__ __forceinline__ uint64_t call(ncclGinCtx ctx, int) { return nccl::utility::loadConst(&((ncclGinProxyGpuCtx_t *)ctx.handle + ginPlaceOf(ctx))->queueSize); }
};
#if NCCL_GIN_GDAKI_ENABLE /* not where nvcc compiles for the host */
template <>
struct GinDepth<NCCL_NET_DEVICE_GIN_GDAKI> {
  static __device__ __forceinline__ uint64_t call(ncclGinCtx ctx, int peer) {
    const ncclGinGdakiGPUContext *own = (ncclGinGdakiGPUContext *)ctx.handle + ginPlaceOf(ctx);
    return nccl::utility::loadConst(&(nccl::utility::loadConst(&own->gdqp) + peer)->sq_wqe_num);
  }
};
#endif

struct GinNet {
  using Window = ncclWindow_t;
  unsigned context;
  ncclGin gin;

  /* One that was granted: 2.28 makes one of its contexts of any number; 2.30 takes it at its word, and writes where there is none. */
  __device__ GinNet(const ncclDevComm &comm, unsigned context) : context(context), gin(comm, (int)context) {}
  /* Of a block, or of a channel. */
  __device__ GinNet(const ncclDevComm &comm, const Gin &g, unsigned block) : GinNet(comm, block % g.contexts) {}
  __device__ GinNet(const ncclDevComm &comm, const Gin &g) : GinNet(comm, g, blockIdx.x) {}

  /* What this thread wrote, or saw others of its block write, goes along: NCCL 2.28.9 has a fence of the device in front of a
   * NIC's doorbell (doca_gpu_dev_verbs_submit), and one of the system where the CPU is asked (gin_proxy.h). */
  template <typename Local>
  __device__ __forceinline__ void put(int peer, Window to, size_t toAt, Window from, size_t fromAt, size_t bytes, uint32_t signal, Local local) const {
    gin.put(ncclTeamWorld(gin.comm), peer, to, toAt, from, fromAt, bytes, GinSignalAdd{signal, 1}, local);
  }
  __device__ __forceinline__ void put(int peer, Window to, size_t toAt, Window from, size_t fromAt, size_t bytes, uint32_t signal) const {
    put(peer, to, toAt, from, fromAt, bytes, signal, ncclGin_None{});
  }
  __device__ __forceinline__ void putCounted(int peer, Window to, size_t toAt, Window from, size_t fromAt, size_t bytes, uint32_t signal, uint32_t counter) const {
    put(peer, to, toAt, from, fromAt, bytes, signal, GinCounterInc{counter});
  }
  /* A put of no bytes: what this context has put to the peer before, the peer's block has when it has acquired this. */
  __device__ __forceinline__ void raise(int peer, uint32_t signal, uint32_t by = 1) const { gin.signal(ncclTeamWorld(gin.comm), peer, GinSignalAdd{signal, by}); }

  /* With acquire: what the signal stands behind is there for who has seen it, and for its block behind a barrier. */
  __device__ __forceinline__ uint64_t signalValue(uint32_t signal) const { return gin.readSignal(signal, kSignalBits); }
  __device__ __forceinline__ uint64_t counterValue(uint32_t counter) const { return gin.readCounter(counter, kCounterBits); }

  /* To a peer, which has its own number in NCCL's connection: that is of all ranks. */
  __device__ __forceinline__ uint64_t depth(int peer) const { return ncclGinCall<GinDepth>(gin._makeCtx(), peer); }

  /* All that this context has to send is read. All threads of the block come here. */
  __device__ __forceinline__ void flush() const { gin.flush(ncclCoopCta{}); }

  __device__ __forceinline__ char *local(Window window, size_t at) const { return (char *)ncclGetLocalPointer(window, at); }
  /* Of a rank of this node, by its place there. */
  __device__ __forceinline__ char *near(Window window, size_t at, int peer) const { return (char *)ncclGetLsaPointer(window, at, peer); }

  /* Of the block, all of whose threads come here. */
  __device__ __forceinline__ bool all(bool fine) const { return __syncthreads_and(fine) != 0; }
};

}  // namespace dyn

#endif
