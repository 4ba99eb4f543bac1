/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators come and go: nothing is left behind, in whatever way they go.
 *
 *   test_lifecycle LIBRARY [communicators to create and destroy]
 */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

struct footprint {
  int descriptors, mappings, files;
  long rssKb, heapBytes;
};

static struct footprint measure(void) {
  struct footprint f = {0};
  char line[512];
  DIR *d = opendir("/proc/self/fd");
  while (d && readdir(d)) f.descriptors++;
  if (d) closedir(d);
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps)) f.mappings++;
  if (maps) fclose(maps);
  FILE *status = fopen("/proc/self/status", "r");
  while (status && fgets(line, sizeof line, status)) sscanf(line, "VmRSS: %ld", &f.rssKb);
  if (status) fclose(status);
  f.files = test_count_files("comm-") + test_count_files("ring-");
  struct mallinfo2 heap = mallinfo2();
  f.heapBytes = (long)(heap.uordblks + heap.hblkhd);
  return f;
}

static void expect_no_growth(const char *what, struct footprint before, struct footprint after) {
  printf("{\"lifecycle\":{\"what\":\"%s\",\"descriptors\":%d,\"mappings\":%d,\"files\":%d,\"rssKbGrowth\":%ld,\"heapGrowth\":%ld}}\n",
         what, after.descriptors - before.descriptors, after.mappings - before.mappings, after.files - before.files,
         after.rssKb - before.rssKb, after.heapBytes - before.heapBytes);
  check(after.descriptors == before.descriptors, "%s: descriptors leak", what);
  check(after.mappings <= before.mappings, "%s: mappings leak", what);
  check(after.files == before.files, "%s: files leak", what);
  check(after.rssKb < before.rssKb + 1024 && after.heapBytes < before.heapBytes + 4096, "%s: memory leaks", what);
}

/* Two ranks in one process, one with a profiler half, some calls past an epoch's border. */
static void one_communicator(uint64_t id, bool profiler) {
  void *ranks[2];
  struct dyn_comm *opened[2] = {NULL, NULL};
  for (int i = 0; i < 2; i++) {
    if (profiler) opened[i] = dyn_comm_open(id, 2, 1, i, test_log);
    check(ncclTunerPlugin_v6.init(&ranks[i], id, 2, 1, test_log, NULL, NULL) == 0, "init");
    check(((struct dyn_comm *)ranks[i])->record, "not joined: %s", test_last_message());
    check(!profiler || ranks[i] == opened[i], "the halves did not meet");
  }
  for (int i = 0; i < 2; i++)
    for (int call = 0; call < 20; call++) test_call(ranks[i], 4, 1024, 0);
  for (int i = 0; i < 2; i++) {
    check(ncclTunerPlugin_v6.finalize(ranks[i]) == 0, "finalize");
    dyn_comm_release_profiler(opened[i]);
  }
}

static void create_and_destroy(int communicators) {
  struct footprint before = {0};
  dyn_process_ref(); /* as a job does that keeps one communicator: the ring of 4 MiB is made once */
  for (int i = 0; i < communicators; i++) {
    if (i == communicators / 100) before = measure();
    one_communicator(1 + (uint64_t)i % 1000, i % 2);
  }
  expect_no_growth("create and destroy", before, measure());
  dyn_process_unref();
  check(test_count_files("ring-") == 0, "the ring's file was left");
}

static void hold_hundreds(void) {
  struct footprint before = measure();
  void *contexts[400];
  for (int i = 0; i < 400; i++)
    check(ncclTunerPlugin_v6.init(&contexts[i], 5000 + (uint64_t)i, 1, 1, test_log, NULL, NULL) == 0, "init");
  for (int i = 0; i < 400; i++) ncclTunerPlugin_v6.finalize(contexts[i * 7 % 400]);
  expect_no_growth("400 at once", before, measure());
}

/* What NCCL does when the last communicator is gone, under either name of the library. */
static void load_and_unload(const char *library) {
  struct footprint before = {0};
  for (int i = 0; i < 200; i++) {
    if (i == 20) before = measure();
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL), *context;
    check(handle, "%s", dlerror());
    const struct dyn_nccl_tuner_v6 *tuner = dlsym(handle, "ncclTunerPlugin_v6");
    check(tuner && tuner->getChunkSize == NULL, "ncclTunerPlugin_v6");
    check(tuner->init(&context, 77, 1, 1, test_log, NULL, NULL) == 0 && context, "init");
    check(tuner->finalize(context) == 0, "finalize");
    check(dlclose(handle) == 0, "dlclose");
    check(!dlopen(library, RTLD_NOW | RTLD_NOLOAD), "the library stayed loaded");
  }
  expect_no_growth("load and unload", before, measure());
  pid_t child = fork(); /* a fork handler of the unloaded library would be called here */
  if (child == 0) _exit(0);
  int status;
  check(waitpid(child, &status, 0) == child && status == 0, "fork after unload");
}

static void forked_child(void) {
  void *context;
  int status;
  check(ncclTunerPlugin_v6.init(&context, 88, 2, 1, test_log, NULL, NULL) == 0, "init");
  struct dyn_comm *comm = context;
  test_call(context, 4, 1024, 0);
  pid_t child = fork();
  if (child == 0) {
    void *own;
    check(!comm->record && !comm->self, "the child kept the parent's registration");
    for (int i = 0; i < 100; i++) check(test_call(context, 4, 1024, 0) == 0, "the child did not pass through");
    check(ncclTunerPlugin_v6.init(&own, 88, 2, 1, test_log, NULL, NULL) == 0, "init");
    struct dyn_comm *mine = own;
    check(mine->record && mine->self->pid == (uint32_t)getpid() && mine->record->joined == 2, "child's own");
    ncclTunerPlugin_v6.finalize(context); /* the parent's must not leave by this */
    ncclTunerPlugin_v6.finalize(own);
    exit(0);
  }
  check(waitpid(child, &status, 0) == child && status == 0, "forked child: status %x", status);
  check(comm->self->pid == (uint32_t)getpid() && comm->self->position != UINT64_MAX, "the child took the parent out");
  ncclTunerPlugin_v6.finalize(context);
  check(test_count_files("comm-") == 0, "a record was left");
}

/* Most programs never destroy their communicators. */
static void exit_without_destroy(void) {
  int status;
  pid_t child = fork();
  if (child == 0) {
    void *context;
    dyn_comm_open(99, 1, 1, 0, test_log);
    ncclTunerPlugin_v6.init(&context, 99, 1, 1, test_log, NULL, NULL);
    check(test_count_files("comm-") == 1 && test_count_files("ring-") == 1, "files of a living communicator");
    exit(0);
  }
  check(waitpid(child, &status, 0) == child && status == 0, "child");
  check(test_count_files("comm-") + test_count_files("ring-") == 0, "exit left files");
}

static void *thread_rank(void *context) {
  static _Atomic int agreed;
  (void)context;
  void *tuner;
  struct dyn_comm *opened = dyn_comm_open(111, 4, 1, -1, test_log);
  check(ncclTunerPlugin_v4.init(4, 1, test_log, &tuner) == 0, "init");
  check(tuner == opened && opened->commId == 111 && opened->record, "v4 did not find this thread's communicator");
  agreed++;
  while (agreed < 4) usleep(100);
  check(opened->record->joined == 4, "four ranks of one process");
  test_call(tuner, 4, 1024, 0);
  check(ncclTunerPlugin_v4.destroy(tuner) == 0, "destroy");
  dyn_comm_release_profiler(opened);
  return NULL;
}

static void ranks_in_threads(void) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) check(pthread_create(&threads[i], NULL, thread_rank, NULL) == 0, "thread");
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  check(test_count_files("comm-") + test_count_files("ring-") == 0, "threads left files");
}

int main(int argc, char **argv) {
  setenv("DYNAMICCL_QUIET", "1", 1); /* a process that has said why it runs plain NCCL keeps the library, to say it once (why.c) */
  check(argc > 1, "usage: test_lifecycle LIBRARY [N]");
  test_directory();
  create_and_destroy(argc > 2 ? atoi(argv[2]) : 5000);
  hold_hundreds();
  load_and_unload(argv[1]);
  forked_child();
  exit_without_destroy();
  ranks_in_threads();
  check(test_count_files("comm-") + test_count_files("ring-") == 0, "files were left");
  test_remove_directory();
  return 0;
}
