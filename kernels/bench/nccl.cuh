/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL beside the kernels, as programs mostly have it, and with buffers that all ranks have registered as symmetric windows,
 * for which it has kernels of its own.
 */
#ifndef DYN_BENCH_NCCL_CUH
#define DYN_BENCH_NCCL_CUH

#include <cuda.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <nccl.h>
#include <set>

#include "timed.cuh"

#define NCCL_OR(status, call)                                                                               \
  do {                                                                                                      \
    ncclResult_t e = (call);                                                                                \
    if (e != ncclSuccess) fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, ncclGetErrorString(e)), _exit(status); \
  } while (0)
#define NCCL(call) NCCL_OR(1, call)

/* Of a process that could not go on with symmetric windows: who started it may do without. */
constexpr int kNoWindows = 3, kWindowSeconds = 30;

static_assert(sizeof(ncclUniqueId) == sizeof Shared::id, "NCCL's id has another size");
static ncclComm_t comm;

/* Behind start. */
static void joinNccl() {
  ncclUniqueId id;
  if (rank == 0) {
    NCCL(ncclGetUniqueId(&id));
    memcpy(shared->id, &id, sizeof id);
  }
  barrier();
  memcpy(&id, shared->id, sizeof id);
  NCCL(ncclCommInitRank(&comm, numRanks, id, rank));
}

enum Collective { kAllReduce, kReduceScatter, kAllGather, kAllToAll, kCollectives };
constexpr const char *kCollectiveNames[kCollectives] = {"AllReduce", "ReduceScatter", "AllGather", "AllToAll"};

/* Where a call's buffers lie. */
struct Place {
  ncclComm_t comm;
  char *in, *out;
  bool registered;
};

/* bytes are nccl-tests': of the larger buffer. */
static void enqueueNccl(const Rank &k, const Place &p, Collective collective, size_t bytes) {
  const size_t count = bytes / sizeof(__nv_bfloat16), part = count / numRanks, partBytes = part * sizeof(__nv_bfloat16);
  const int status = p.registered ? kNoWindows : 1;
  if (collective == kAllReduce) NCCL_OR(status, ncclAllReduce(p.in, p.out, count, ncclBfloat16, ncclSum, p.comm, k.stream));
  if (collective == kReduceScatter) NCCL_OR(status, ncclReduceScatter(p.in, p.out, part, ncclBfloat16, ncclSum, p.comm, k.stream));
  if (collective == kAllGather) NCCL_OR(status, ncclAllGather(p.in, p.out, part, ncclBfloat16, p.comm, k.stream));
  if (collective != kAllToAll) return;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
  if (p.registered) {
    NCCL_OR(status, ncclAlltoAll(p.in, p.out, part, ncclBfloat16, p.comm, k.stream));
    return;
  }
#endif
  NCCL(ncclGroupStart());
  for (int r = 0; r < numRanks; r++) {
    NCCL(ncclSend(p.in + r * partBytes, part, ncclBfloat16, r, p.comm, k.stream));
    NCCL(ncclRecv(p.out + r * partBytes, part, ncclBfloat16, r, p.comm, k.stream));
  }
  NCCL(ncclGroupEnd());
}

/* One call, every element: those that are wrong on any rank. */
template <typename Enqueue>
static long checkNccl(const Rank &k, const Place &p, Collective collective, size_t bytes, Enqueue enqueue) {
  using T = __nv_bfloat16;
  const bool sums = collective == kAllReduce || collective == kReduceScatter, gathers = collective == kAllGather;
  const size_t count = bytes / sizeof(T), part = count / numRanks, partBytes = part * sizeof(T);
  const unsigned seed = 77 + collective;
  const unsigned long long before = *k.wrong;
  CUDA(cudaMemsetAsync(p.out, 0xff, bytes, k.stream));
  if (sums) fill<T><<<32, 256, 0, k.stream>>>((T *)p.in, count, rank, Op::sum, seed);
  else fill<Byte><<<32, 256, 0, k.stream>>>((Byte *)p.in, gathers ? partBytes : partBytes * numRanks, rank, Op::sum, seed);
  enqueue();
  if (collective == kAllReduce) verify<T><<<32, 256, 0, k.stream>>>((T *)p.out, count, 0, numRanks, Op::sum, seed, k.wrong);
  else if (sums) verify<T><<<32, 256, 0, k.stream>>>((T *)p.out, part, rank * part, numRanks, Op::sum, seed, k.wrong);
  else verifyMoved<<<32, 256, 0, k.stream>>>((Byte *)p.out, partBytes, numRanks, 0, gathers ? 0 : rank * partBytes, seed, k.wrong);
  CUDA(cudaGetLastError());
  CUDA(cudaStreamSynchronize(k.stream));
  const long known = shared->wrong;
  barrier();
  shared->wrong += (long)(*k.wrong - before);
  barrier();
  return shared->wrong - known;
}

/* Names of the kernels in a graph, each once: of those that NCCL launched only CUDA's driver knows them. It says what ran: a
 * window does not yet make NCCL choose a symmetric kernel. */
static std::string kernelsOf(cudaGraph_t graph) {
  static void *const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  static const auto paramsOf = driver == nullptr ? nullptr : (decltype(&cuGraphKernelNodeGetParams))dlsym(driver, "cuGraphKernelNodeGetParams_v2");
  static const auto nameOf = driver == nullptr ? nullptr : (decltype(&cuFuncGetName))dlsym(driver, "cuFuncGetName");
  static const auto kernelNameOf = driver == nullptr ? nullptr : (decltype(&cuKernelGetName))dlsym(driver, "cuKernelGetName");
  if (paramsOf == nullptr || nameOf == nullptr || kernelNameOf == nullptr) return "unknown";
  size_t count = 0;
  CUDA(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0) CUDA(cudaGraphGetNodes(graph, nodes.data(), &count));
  std::set<std::string> names;
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type;
    CUDA_KERNEL_NODE_PARAMS params = {};
    const char *mangled = nullptr;
    CUDA(cudaGraphNodeGetType(node, &type));
    if (type == cudaGraphNodeTypeMemcpy) names.insert("copy");
    if (type != cudaGraphNodeTypeKernel) continue;
    if (paramsOf(node, &params) == CUDA_SUCCESS) params.func != nullptr ? nameOf(&mangled, params.func) : kernelNameOf(&mangled, params.kern);
    int status = -1;
    char *plain = mangled == nullptr ? nullptr : abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
    const std::string name = plain != nullptr ? plain : mangled != nullptr ? mangled : "unknown";
    free(plain);
    names.insert(name.substr(0, name.find('(')));
  }
  std::string all;
  for (const std::string &name : names) all += (all.empty() ? "" : " ") + name;
  return all;
}

static void timeNccl(const Rank &k, const Place &p, Collective collective, size_t bytes) {
  const auto enqueue = [&] { enqueueNccl(k, p, collective, bytes); };
  const long wrong = p.registered ? checkNccl(k, p, collective, bytes, enqueue) : 0;
  const cudaGraph_t graph = captured(k, enqueue);
  const std::string kernels = kernelsOf(graph);
  const double us = replayed(k, graph);
  if (rank != 0) return;
  printf("{\"figure\":\"lsa time\",\"ranks\":%d,\"collective\":\"%s\",\"bytes\":%zu,\"path\":\"%s\",\"kernel\":\"%s\",", numRanks, kCollectiveNames[collective],
         bytes, p.registered ? "nccl symmetric" : "nccl", kernels.c_str());
  if (p.registered) printf("\"wrong\":%ld,", wrong);
  printf("\"us\":%.2f}\n", us);
}

/* ---- windows ---- */

/* False, and why, without what JSON has to quote. */
static bool succeeds(ncclResult_t result, const char *what, std::string *why) {
  if (result == ncclSuccess) return true;
  *why = std::string(what) + ": " + ncclGetErrorString(result) + ": " + ncclGetLastError(nullptr);
  for (char &c : *why)
    if (c == '"' || c == '\\' || (unsigned char)c < ' ') c = ' ';
  return false;
}

/* Registering waits for the other ranks, and if one of them cannot, it may be for ever. */
static void lateWithWindows(int) {
  dprintf(STDERR_FILENO, "rank %d: out of time with NCCL's windows\n", rank);
  _exit(kNoWindows);
}

/* On a communicator of its own, so that NCCL's default stays what it is where no window has ever been. False on all ranks if on
 * any. What is there by then stays: the process ends soon. */
static bool makeWindows(size_t bytes, Place *p, std::string *why) {
  int version = 0;
  NCCL(ncclGetVersion(&version));
  if (version < NCCL_VERSION(2, 28, 0)) {
    *why = "NCCL is older than 2.28";
    return false;
  }
  signal(SIGALRM, lateWithWindows);
  const unsigned left = alarm(kWindowSeconds);
  bool fine = everybody(succeeds(ncclCommSplit(comm, 0, rank, &p->comm, nullptr), "ncclCommSplit", why));
  for (char **buffer : {&p->in, &p->out}) {
    ncclWindow_t window = nullptr;
    if (fine) fine = everybody(succeeds(ncclMemAlloc((void **)buffer, bytes), "ncclMemAlloc", why));
    if (!fine) break;
    fine = succeeds(ncclCommWindowRegister(p->comm, *buffer, bytes, &window, NCCL_WIN_COLL_SYMMETRIC), "ncclCommWindowRegister", why);
    if (fine && window == nullptr) *why = "ncclCommWindowRegister gives no window";
    fine = everybody(fine && window != nullptr);
  }
  if (!fine) signal(SIGALRM, SIG_DFL);
  alarm(left);
  if (!fine && why->empty()) *why = "another rank could not";
  return p->registered = fine;
}

#endif
