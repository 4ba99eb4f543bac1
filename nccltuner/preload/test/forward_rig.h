/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of NCCL's with arguments of each kind, and whether they arrive at the fake NCCL with all of them. Header only; one program
 * includes it once.
 */
#ifndef DYN_FORWARD_RIG_H
#define DYN_FORWARD_RIG_H

#include "fake.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../net.h"

#define CHECK(cond, ...) \
  do { \
    if (!(cond)) { \
      fprintf(stderr, "%s:%d: %s:", __FILE__, __LINE__, #cond); \
      fprintf(stderr, " " __VA_ARGS__); \
      fprintf(stderr, "\n"); \
      exit(1); \
    } \
  } while (0)

typedef int (*function)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);
typedef int (*init_rank)(uintptr_t, int, struct fake_id, int, uintptr_t);

/* p pointer, z size_t, i int, s stream, c configuration of a communicator, which is read */
static const struct { const char *name, *arguments, *real; int nth; } calls[] = {
    {"ncclAllReduce", "ppziips", NULL, 0},          {"ncclBroadcast", "ppziips", NULL, 0},
    {"ncclReduce", "ppziiips", NULL, 0},            {"ncclAllGather", "ppzips", NULL, 0},
    {"ncclReduceScatter", "ppziips", NULL, 0},      {"ncclAlltoAll", "ppzips", NULL, 0},
    {"ncclGather", "ppziips", NULL, 0},             {"ncclScatter", "ppziips", NULL, 0},
    {"ncclSend", "pziips", NULL, 0},                {"ncclRecv", "pziips", NULL, 0},
    {"ncclAllReduceConfig", "ppziipsp", NULL, 0},   {"ncclBroadcastConfig", "ppziipsp", NULL, 0},
    {"ncclReduceConfig", "ppziiipsp", NULL, 0},     {"ncclAllGatherConfig", "ppzipsp", NULL, 0},
    {"ncclReduceScatterConfig", "ppziipsp", NULL, 0}, {"ncclAlltoAllConfig", "ppzipsp", NULL, 0},
    {"ncclGatherConfig", "ppziipsp", NULL, 0},      {"ncclScatterConfig", "ppziipsp", NULL, 0},
    {"ncclBcast", "pziips", "ncclBroadcast", 1},    {"ncclCommInitAll", "pip", NULL, 0},
    {"ncclGetUniqueId", "p", NULL, 0},              {"ncclCommFinalize", "p", NULL, 0},
    {"ncclCommInitRankScalable", "piiipc", NULL, 0}, {"ncclCommSplit", "piipc", NULL, 0},
    {"ncclCommShrink", "ppipci", NULL, 0},          {"ncclGroupStart", "", NULL, 0},
    {"ncclGroupEnd", "", NULL, 0},                  {"ncclGroupSimulateEnd", "p", NULL, 0},
    {"ncclCommDestroy", "p", NULL, 0},              {"ncclCommAbort", "p", NULL, 0},
    {"ncclCommRevoke", "pi", NULL, 0},             
    {"ncclCommSuspend", "pi", NULL, 0},             {"ncclCommResume", "p", NULL, 0},
    {"ncclCommWindowRegister", "ppzpi", NULL, 0},   {"ncclCommWindowDeregister", "pp", NULL, 0}};
#define NUM_CALLS (sizeof calls / sizeof *calls)

static function find(const char *name) {
  function f = (function)dlsym(dlopen(NULL, RTLD_LAZY), name); /* in the order of a program that is linked with NCCL */
  CHECK(f != NULL, "%s", name);
  return f;
}

static const struct dyn_nccl_config plainConfig = {.size = sizeof plainConfig, .magic = 0xcafebeef, .version = DYN_NCCL_CONFIG_VERSION};

static void forwards(int i, uintptr_t stream, struct fake_call *fake) {
  uintptr_t a[FAKE_ARGUMENTS] = {0};
  size_t n = strlen(calls[i].arguments);
  for (size_t k = 0; k < n; k++) {
    uintptr_t wide = 0x1122334400000000u + (uintptr_t)i * 16 + k;
    char type = calls[i].arguments[k];
    a[k] = type == 's' ? stream : type == 'c' ? (uintptr_t)&plainConfig : type == 'i' ? (uintptr_t)i + k + 1 : wide;
  }
  unsigned before = fake->calls;
  int result = find(calls[i].name)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]);
  CHECK(result == FAKE_RESULT, "%s: %d", calls[i].name, result);
  const char *real = calls[i].real == NULL ? calls[i].name : calls[i].real;
  CHECK(fake->calls == before + 1 && strcmp(fake->name, real) == 0, "%s became %s", calls[i].name, fake->name);
  for (size_t k = 0; k < n; k++) {
    uintptr_t got = fake->arguments[k + (size_t)calls[i].nth];
    CHECK(calls[i].arguments[k] == 'i' ? (int)got == (int)a[k] : got == a[k], "%s: argument %zu is %lx", calls[i].name, k,
          (unsigned long)got);
  }
}

static int streams_call(int i) { return strchr(calls[i].arguments, 's') != NULL; }

#endif
