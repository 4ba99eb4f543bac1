/* SPDX-License-Identifier: Apache-2.0
 *
 * LD_PRELOAD=libdynamiccl.so: times collectives by CUDA events while the plugin wants that (probe.c), and keeps
 * kernel events out of CUDA graphs (calls.c). In a program without the plugin it forwards and does nothing else.
 */
#include "device.h"
#include "gathers.h"
#include "groups.h"
#include "probe.h"
#include "sends.h"
#include "windows.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUDA_SUCCESS 0
#define CAPTURE_NONE 0 /* CU_STREAM_CAPTURE_STATUS_NONE */

__thread struct dyn_thread dyn_thread;
static __thread bool capturedGroup; /* with a captured call */
static __thread int groupMode = -1; /* as dyn_passage.captureMode, of the group that is ending */

static const struct dyn_preload_call *this_call(void) { return &dyn_thread.call; }

static struct dyn_about about(uint32_t nRanks, int rank, int collective) {
  struct dyn_about it = {dyn_thread.call.timed, dyn_thread.call.key};
  if (dyn_thread.call.key == 0) dyn_grouped_about(nRanks, rank, collective, &it);
  return it;
}

static bool can_time(void) { return dyn_driver() != NULL; }

__attribute__((visibility("default"))) struct dyn_preload dynamiccl_preload = {.version = DYN_PRELOAD_VERSION,
                                                                                .call = this_call,
                                                                                .about = about,
                                                                                .can_time = can_time,
                                                                                .device = &dyn_device_calls,
                                                                                .gathers = &dyn_gathers_calls,
                                                                                .roundLock = PTHREAD_MUTEX_INITIALIZER};

static struct dyn_mask_words words_of(atomic_int *mask) {
  return (struct dyn_mask_words){mask, &dynamiccl_preload.take, &dynamiccl_preload.restore, &dynamiccl_preload.turns,
                                 &dynamiccl_preload.tell};
}

/* Never loads anything: a library that the program has not loaded cannot be the one that it means. */
void *dyn_find_loaded(const char *library, const char *name) {
  void *handle = dlopen(library, RTLD_NOLOAD | RTLD_LAZY);
  if (handle == NULL) return NULL;
  void *found = dlsym(handle, name);
  dlclose(handle); /* gives back the count that dlopen took; who loaded it still has it */
  return found;
}

/* The library that has this address, which stays loaded from now on. */
static void *library_of(const void *address) {
  Dl_info in;
  return address != NULL && dladdr(address, &in) != 0 && in.dli_fname != NULL ? dlopen(in.dli_fname, RTLD_NOLOAD | RTLD_LAZY) : NULL;
}

static void *that_has_nccl(void *library) {
  if (library == NULL || dlsym(library, "ncclGetVersion") != NULL) return library;
  dlclose(library);
  return NULL;
}

/* Where NCCL is for a library that was loaded for its user alone: in it, as in a PyTorch that was linked with NCCL's archive, or in what it
 * was linked with, whatever the name; or else in libnccl.so.2, which somebody has loaded. One for all calls: communicators are NCCL's own. */
static _Atomic(void *) found; /* NULL: none was asked for, or the program's order has one, in which others may stand before it */
static void *library_with_nccl(const void *caller) {
  void *library = atomic_load(&found), *none = NULL;
  if (library != NULL || (library = library_of(dlsym(RTLD_NEXT, "ncclGetVersion"))) != NULL) return library;
  library = that_has_nccl(library_of(caller));
  if (library == NULL) library = dlopen("libnccl.so.2", RTLD_NOLOAD | RTLD_LAZY);
  return atomic_compare_exchange_strong(&found, &none, library) ? library : none; /* another thread may have found one meanwhile */
}

static void *find_behind(const char *name, const void *own, const void *caller) {
  void *library = atomic_load(&found), *real = library == NULL ? dlsym(RTLD_NEXT, name) : NULL; /* another NCCL may have come in between */
  if (real == NULL || real == own) library = library_with_nccl(caller);
  if (library != NULL) real = dlsym(library, name);
  return real == own ? NULL : real; /* a library that hands us ourselves would call us for ever */
}

void *dyn_find_behind(const char *name) { return find_behind(name, NULL, NULL); }

bool dyn_is_reached(const char *name, const void *caller) {
  void *library = library_of(caller);
  const void *real = library == NULL ? NULL : dlsym(library, name);
  Dl_info in, own;
  bool found = real != NULL && dladdr(real, &in) != 0 && dladdr((void *)dyn_is_reached, &own) != 0 && in.dli_fbase != own.dli_fbase;
  if (library != NULL) dlclose(library);
  return found;
}

/* What is loaded, by name. The loader's list is looked through under a lock, in which nothing is to be asked of it. */
struct names { char *of[2048]; unsigned n; };
static int note_name(struct dl_phdr_info *info, size_t size, void *data) {
  struct names *names = data;
  (void)size;
  if (names->n < sizeof names->of / sizeof *names->of) names->of[names->n++] = strdup(info->dlpi_name);
  return 0;
}

static bool has_other_nccl(const char *name, const void *base, const void *own) {
  void *library = name == NULL ? NULL : dlopen(name[0] == '\0' ? NULL : name, RTLD_NOLOAD | RTLD_LAZY);
  Dl_info in;
  if (library == NULL) return false; /* the system's own page */
  const void *version = dlsym(library, "ncclGetVersion");
  const bool has = version != NULL && dladdr(version, &in) != 0 && in.dli_fbase != base && in.dli_fbase != own;
  dlclose(library);
  return has;
}

/* No library but the one of this address has NCCL, and ours, which stands in front of some of it. */
static bool is_the_only(const void *real) {
  Dl_info in, own;
  struct names *names = calloc(1, sizeof *names);
  if (names == NULL || dladdr(real, &in) == 0 || dladdr((void *)dyn_is_behind, &own) == 0) return free(names), false;
  bool only = true;
  dl_iterate_phdr(note_name, names);
  for (unsigned i = 0; i < names->n; i++) {
    only = only && !has_other_nccl(names->of[i], in.dli_fbase, own.dli_fbase);
    free(names->of[i]);
  }
  free(names);
  return only;
}

bool dyn_is_behind(const char *name, const void *real) {
  void *library = atomic_load(&found), *next = library == NULL ? dlsym(RTLD_NEXT, name) : NULL;
  if (next != NULL) return next == real;
  if (library != NULL) return dlsym(library, name) == real;
  if (!is_the_only(real) || (library = library_of(real)) == NULL) return false;
  void *none = NULL;
  return atomic_compare_exchange_strong(&found, &none, library) || dlsym(none, name) == real;
}

void *dyn_find_first(dyn_real *cache, const char *name, const void *own, const void *caller) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  void *real = find_behind(name, own, caller);
  if (real != NULL) {
    library_of(real); /* what is kept of it must not go with a dlclose: NCCL may come back elsewhere */
    atomic_store_explicit(cache, real, memory_order_release); /* threads that race find the same */
  } else if (!atomic_flag_test_and_set(&said)) {
    fprintf(stderr, "libdynamiccl.so: %s was called, but no NCCL that has it is loaded (libnccl.so.2): the call "
            "fails; run without LD_PRELOAD to see what the program does alone\n", name);
  }
  return real;
}

/* NULL: the program has not loaded the driver, or it is too old. */
static __attribute__((noinline)) void *driver_function_first(dyn_real *cache, const char *name) {
  void *found = dyn_find_loaded("libcuda.so.1", name);
  if (found != NULL) atomic_store_explicit(cache, found, memory_order_release);
  return found;
}
static inline void *driver_function(dyn_real *cache, const char *name) {
  void *found = atomic_load_explicit(cache, memory_order_acquire);
  return found != NULL ? found : driver_function_first(cache, name);
}

/* Also right for the default streams: NULL and cudaStreamLegacy are the legacy one here as in NCCL's own calls,
 * cudaStreamPerThread is that. An error is "captured": while any blocking stream is captured the driver refuses to tell
 * about the legacy one, and a guard too many costs a sample, not a graph. The capture is not disturbed by asking. */
static inline bool is_captured(void *stream, bool *known) {
  int status = CAPTURE_NONE;
  int (*asks)(void *, int *) = (int (*)(void *, int *))driver_function(&dynamiccl_preload.isCapturing, "cuStreamIsCapturing");
  *known = asks != NULL && asks(stream, &status) == CUDA_SUCCESS;
  return !*known || status != CAPTURE_NONE;
}

bool dyn_captured(void *stream, bool *known) { return is_captured(stream, known); }

/* NCCL makes the connections of an algorithm in the first call that runs it. Where a process has several GPUs that is
 * cudaDeviceEnablePeerAccess (src/transport/p2p.cc), which a thread may not call while it captures a stream, unless it says
 * that it knows what it does, as NCCL itself does where it allocates. A program that ran its collectives before it captures
 * them has NCCL's own choice connected, and not the one that a plugin makes since. The mode before, negative: no driver. */
static int exchange_mode(int mode) {
  static dyn_real cache;
  int (*exchange)(int *) = (int (*)(int *))driver_function(&cache, "cuThreadExchangeStreamCaptureMode");
  return exchange != NULL && exchange(&mode) == CUDA_SUCCESS ? mode : -1;
}

/* Each thread has 2^32 numbers of its own. */
static __attribute__((noinline)) void first_number(struct dyn_preload_call *call) {
  static atomic_uint threads;
  call->number = (uint64_t)(atomic_fetch_add(&threads, 1) + 1) << 32;
}
static inline void next_number(struct dyn_preload_call *call) {
  if (call->number == 0) first_number(call);
  call->number++;
}

/* known: the driver has said that it is captured. */
static __attribute__((noinline)) void guard(struct dyn_passage *passage, atomic_int *mask, bool known) {
  struct dyn_mask_words words = words_of(mask);
  dyn_guard_enter(&words);
  passage->mask = mask; /* left where it was entered, whatever the plugin does meanwhile */
  dyn_thread.call.captured = true;
  dyn_thread.call.inGraph = known;
  passage->captureMode = exchange_mode(DYN_RELAXED_CAPTURE);
  capturedGroup |= dyn_in_group();
}

/* NCCL calls itself through our names in places (ncclBcast calls ncclBroadcast): passages nest. */
DYN_HOT void dyn_passage_enter(struct dyn_passage *passage, void *stream, void *comm, uint64_t key) {
  struct dyn_preload_call *call = &dyn_thread.call;
  bool outermost = call->depth++ == 0;
  passage->mask = NULL;
  passage->probe = NULL;
  passage->captureMode = -1;
  passage->outer = call->comm;
  if (outermost) next_number(call);
  call->comm = comm;
  atomic_int *mask = atomic_load_explicit(&dynamiccl_preload.mask, memory_order_acquire);
  if (mask == NULL) return; /* no plugin: no communicator of this call can have a KernelCh of ours */
  bool known;
  if (!call->captured && DYN_RARELY(is_captured(stream, &known))) guard(passage, mask, known);
  if (DYN_RARELY(!outermost)) return;
  struct dyn_mask_words words = words_of(mask);
  call->looked = true;
  call->before = dyn_mask_look(&words);
  call->key = DYN_RARELY(call->captured || dyn_in_group()) ? 0 : key;
  if (call->key != 0 && DYN_RARELY(dyn_call_wanted(&dynamiccl_preload, comm, key))) {
    passage->probe = dyn_probe_begin(stream);
    call->timed = passage->probe == NULL ? NULL : dyn_probe_timed(passage->probe);
  }
}

DYN_HOT void dyn_passage_leave(const struct dyn_passage *passage, int result) {
  struct dyn_preload_call *call = &dyn_thread.call;
  if (DYN_RARELY(passage->probe != NULL)) dyn_probe_end(passage->probe, result == 0, dyn_host_ns());
  if (DYN_RARELY(passage->mask != NULL)) {
    struct dyn_mask_words words = words_of(passage->mask);
    dyn_guard_leave(&words);
    call->captured = call->inGraph = false;
  }
  if (DYN_RARELY(passage->captureMode >= 0)) exchange_mode(passage->captureMode);
  call->comm = passage->outer;
  if (--call->depth > 0) return;
  call->looked = false;
  call->timed = NULL;
  call->key = 0;
}

int dyn_forward(const struct dyn_request *request, uint64_t key) {
  struct dyn_passage passage;
  dyn_passage_enter(&passage, request->work.stream, request->comm, key);
  int result = request->forward(request);
  dyn_passage_leave(&passage, result);
  return result;
}

int dyn_forward_empty(const struct dyn_request *request) {
  struct dyn_preload_call *call = &dyn_thread.call;
  next_number(call);
  call->depth++;
  call->looked = true;
  call->comm = request->comm;
  int result = request->forward(request);
  call->comm = NULL;
  call->looked = false;
  call->depth--;
  return result;
}

void dyn_group_begin(void) { dyn_thread.groups++; }
void dyn_group_end(bool simulated) {
  if (dyn_thread.groups == 1) {
    dyn_grouped_begin(simulated, capturedGroup);
    dyn_gathers_ends(simulated);
    dyn_device_group_ends(simulated);
  }
  if (dyn_thread.groups > 0) dyn_thread.groups--;
  dyn_thread.call.ends = dyn_thread.groups == 0;
  dyn_thread.call.simulates = simulated && dyn_thread.call.ends;
  next_number(&dyn_thread.call);
  if (dyn_thread.groups > 0 || !capturedGroup) return;
  capturedGroup = false;
  groupMode = exchange_mode(DYN_RELAXED_CAPTURE);
}
int dyn_group_ended(int result) {
  if (groupMode >= 0) exchange_mode(groupMode);
  groupMode = -1;
  dyn_thread.call.ends = dyn_thread.call.simulates = false;
  if (dyn_thread.groups > 0) return result;
  dyn_gathers_ended(result);
  dyn_windows_group_ended(result);
  dyn_making_ends(result);
  result = dyn_device_group_ended(result);
  dyn_grouped_end(result);
  return result;
}

void dyn_comm_goes(const void *comm) {
  if (comm == NULL) return;
  if (dyn_thread.groups > 0) dyn_grouped_spoil();
  dyn_watch_forget(&dynamiccl_preload.watched, comm);
  dyn_rest_remove(&dynamiccl_preload.resting, comm);
  dyn_lone_set(comm, 0);
}

void dyn_announce(int communicators) {
  dyn_sends_begin();
  if (communicators > 0) atomic_fetch_add(&dynamiccl_preload.announced, communicators);
}
