/* SPDX-License-Identifier: Apache-2.0
 *
 *   LD_PRELOAD=libdynamiccl.so test_hook FOLDER     with libhook.so beside it; FOLDER has the fake libnccl.so.2
 * A tool whose dlsym stands behind ours (hook.c) is asked as without us, and NCCL's functions are still ours.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) ((condition) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), exit(1)))

extern int hook_looks;
int hook_taken(void);

int main(int argc, char **argv) {
  char path[4096];
  Dl_info in;
  CHECK(argc == 2 && snprintf(path, sizeof path, "%s/libnccl.so.2", argv[1]) < (int)sizeof path);
  void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_LOCAL), *nccl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK(libc != NULL && nccl != NULL);
  CHECK(dlsym(RTLD_DEFAULT, "getpid") == (void *)hook_taken && dlsym(libc, "getpid") == (void *)hook_taken);
  CHECK(dlsym(libc, "getppid") != NULL && dlsym(libc, "getppid") != (void *)hook_taken);
  void *broadcast = dlsym(nccl, "ncclBroadcast");
  CHECK(hook_looks > 0 && broadcast != NULL && dladdr(broadcast, &in) != 0 && strstr(in.dli_fname, "libdynamiccl.so") != NULL);
  return 0;
}
