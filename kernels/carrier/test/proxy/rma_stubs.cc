/* SPDX-License-Identifier: Apache-2.0
 *
 * What NCCL 2.30.7's sources need beside nccl_stubs.cc: plugins that are not there, the bootstrap, a topology of one device.
 */
#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <cstdarg>
#include <thread>

#include "bootstrap.h"
#include "comm.h"
#include "gdrwrap.h"
#include "graph.h"
#include "nccl_gin.h"
#include "nccl_rma.h"
#include "proxy_rig.h"

void ncclDebugLogInternal(ncclDebugLogLevel level, unsigned long, const char *file, const char *, int line, const char *format, ...) {
  va_list arguments;
  if (level > ncclDebugLevel) return;
  va_start(arguments, format);
  fprintf(stderr, "rank %d: %s:%d ", proxy_rank(), file, line);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
}
__attribute__((constructor)) static void listen_to_nccl() {
  if (getenv("NCCL_DEBUG") != nullptr) ncclDebugLevel = NCCL_LOG_INFO, ncclDebugMask = ~0ull;
}
const char *ncclGetEnv(const char *name) { return getenv(name); }
int64_t ncclLoadParam(char const *, int64_t deflt, int64_t, int64_t *cache, int8_t *) { return *cache = deflt; }
int64_t ncclParamGinType() { return -1; }
void ncclSetThreadName(std::thread &, const char *, ...) {}

/* No InfiniBand here. */
static ncclResult_t none(void **, uint64_t, ncclDebugLogger_t) { return ncclInternalError; }
ncclGin_t ncclGinIbGdaki = {"none", none};
ncclRma_t ncclRmaIbProxy = {"none", none};

ncclResult_t bootstrapAllGather(void *, void *all, int bytes) { return proxy_gather(all, (size_t)bytes), ncclSuccess; }
ncclResult_t ncclTopoGetLocalGinDevs(ncclComm *, int *devices, int *count) { return devices[0] = 0, *count = 1, ncclSuccess; }
ncclTeam_t ncclTeamRail(ncclComm_t) { abort(); } /* all ranks are connected with all */
int ncclTeamRankToWorld(ncclComm_t, ncclTeam_t, int) { abort(); }

ncclResult_t ncclMemTrack(ncclMemManager *, void *, size_t, CUmemGenericAllocationHandle, CUmemAllocationHandleType, ncclMemType_t) { return ncclSuccess; }
ncclResult_t ncclMemUntrack(ncclMemManager *, void *, size_t) { return ncclSuccess; }
bool ncclGdrPinV2Available() { return false; }
ncclResult_t wrap_gdr_pin_buffer_v2(gdr_t, unsigned long, size_t, uint32_t, gdr_mh_t *) { return ncclInternalError; }
extern "C" cudaError_t cudaGetLastError() { return cudaSuccess; }

ncclOsLibraryHandle ncclOsDlopen(const char *name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); }
void *ncclOsDlsym(ncclOsLibraryHandle handle, const char *symbol) { return dlsym(handle, symbol); }
void ncclOsDlclose(ncclOsLibraryHandle handle) { dlclose(handle); }
const char *ncclOsDlerror() { return dlerror(); }
size_t ncclOsGetPageSize() { return (size_t)sysconf(_SC_PAGESIZE); }
int ncclOsCpuCount(const ncclAffinity &) { return 0; }
ncclResult_t ncclOsSetAffinity(const ncclAffinity &) { return ncclSuccess; }
