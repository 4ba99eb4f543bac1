/* SPDX-License-Identifier: Apache-2.0
 *
 * Our definitions of NCCL's plugin structs against testdata/nccl_abi_facts.txt, which abi_facts.sh took from NCCL's own
 * headers. Every fact must be met and every field of ours must be a fact: a difference in either direction fails.
 */
#include "../nccl_profiler_abi.h"
#include "../nccl_tuner_abi.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../profiler.h"

/* The tuner half names its structs itself. */
typedef struct dyn_nccl_tuner_v2 ncclTuner_v2_t;
typedef struct dyn_nccl_tuner_v3 ncclTuner_v3_t;
typedef struct dyn_nccl_tuner_v4 ncclTuner_v4_t;
typedef struct dyn_nccl_tuner_v5 ncclTuner_v5_t;
typedef struct dyn_nccl_tuner_v6 ncclTuner_v6_t;

struct ours {
  const char *type, *field;
  long offset, size;
  long total; /* of the struct; -1: opaque */
  int met;
};
static struct ours fields[] = {
#define FIELD(T, F) {#T, #F, offsetof(T, F), sizeof(((T *)0)->F), sizeof(T), 0},
#define OPAQUE(T, F) {#T, #F, 0, 0, -1, 0},
#include "abi_fields.h"
};

/* Enumerators and numbers that our code spells out. */
#define VALUE(NAME) {"enum", #NAME, NAME, 4, 4, 0}
#define IS(NAME, VALUE) {"enum", #NAME, VALUE, 4, 4, 0}
static struct ours values[] = {
  VALUE(ncclProfileGroup), VALUE(ncclProfileColl), VALUE(ncclProfileP2p), VALUE(ncclProfileProxyOp),
  VALUE(ncclProfileProxyStep), VALUE(ncclProfileProxyCtrl), VALUE(ncclProfileKernelCh), VALUE(ncclProfileNetPlugin),
  VALUE(ncclProfileGroupApi), VALUE(ncclProfileCollApi), VALUE(ncclProfileP2pApi), VALUE(ncclProfileKernelLaunch),
  VALUE(ncclProfileCeColl), VALUE(ncclProfileCeSync), VALUE(ncclProfileCeBatch), VALUE(ncclProfileKernelPhase),
  VALUE(ncclProfilerProxyStepSendGPUWait), VALUE(ncclProfilerProxyStepRecvGPUWait), VALUE(ncclProfilerProxyCtrlIdle),
  VALUE(ncclProfilerProxyCtrlAppendEnd), VALUE(ncclProfilerProxyOpInProgress_v4),
  VALUE(ncclProfilerProxyStepSendPeerWait_v4), VALUE(ncclProfilerNetPluginUpdate), VALUE(ncclProfilerKernelChStop),
  VALUE(ncclProfilerGroupStartApiStop), VALUE(ncclProfilerGroupEndApiStart), VALUE(ncclProfilerCeCollStart),
  VALUE(ncclProfilerCeBatchComplete), VALUE(ncclProfilerKernelPhaseStop),
  /* ncclFunc_t as in dyn_sample.collective; the names of profiler_names.c stand at these numbers. */
  IS(ncclFuncBroadcast, 0), IS(ncclFuncReduce, 1), IS(ncclFuncAllGather, 2), IS(ncclFuncReduceScatter, 3),
  IS(ncclFuncAllReduce, 4), IS(NCCL_ALGO_TREE, 0), IS(NCCL_ALGO_RING, 1), IS(NCCL_ALGO_COLLNET_DIRECT, 2),
  IS(NCCL_ALGO_COLLNET_CHAIN, 3), IS(NCCL_ALGO_NVLS, 4), IS(NCCL_ALGO_NVLS_TREE, 5), IS(NCCL_ALGO_PAT, 6),
  IS(NCCL_PROTO_LL, 0), IS(NCCL_PROTO_LL128, 1), IS(NCCL_PROTO_SIMPLE, 2), IS(NCCL_NUM_PROTOCOLS, 3),
  IS(ncclInt8, 0), IS(ncclUint8, 1), IS(ncclInt32, 2), IS(ncclUint32, 3), IS(ncclInt64, 4), IS(ncclUint64, 5),
  IS(ncclFloat16, 6), IS(ncclFloat32, 7), IS(ncclFloat64, 8), IS(ncclBfloat16, 9), IS(ncclFloat8e4m3, 10),
  IS(ncclFloat8e5m2, 11),
};
#define COUNT(a) (sizeof(a) / sizeof *(a))

static int failures;
#define FAIL(...) (failures++, fprintf(stderr, __VA_ARGS__), fputc('\n', stderr))

static void check_fact(const char *version, const char *type, const char *field, long offset, long size) {
  if (strcmp(type, "enum") == 0) {
    /* NCCL grew its list of algorithms: PAT came with 2.23. */
    if (strcmp(field, "NCCL_NUM_ALGORITHMS") == 0) {
      if (offset != 6 && offset != 7) FAIL("%s: %ld algorithms", version, offset);
      return;
    }
    for (size_t i = 0; i < COUNT(values); i++) {
      if (strcmp(values[i].field, field) != 0) continue;
      values[i].met++;
      if (values[i].offset != offset) FAIL("%s: %s is %ld, ours %ld", version, field, offset, values[i].offset);
      return;
    }
    FAIL("%s: %s is not among ours", version, field);
    return;
  }
  int known = 0;
  for (size_t i = 0; i < COUNT(fields); i++) {
    struct ours *o = &fields[i];
    if (strcmp(o->type, type) != 0) continue;
    if (strcmp(field, ".") == 0) {
      if (!known && o->total >= 0 && o->total != size)
        FAIL("%s: %s has %ld bytes, ours %ld", version, type, size, o->total);
      known = 1;
    } else if (strcmp(o->field, field) == 0) {
      known = 1;
      o->met++;
      if (o->total >= 0 && (o->offset != offset || o->size != size))
        FAIL("%s: %s.%s is at %ld with %ld bytes, ours at %ld with %ld", version, type, field, offset, size, o->offset,
             o->size);
    }
  }
  if (!known) FAIL("%s: %s.%s is not among ours", version, type, field);
}

/* The names in profiler_names.c must stand at NCCL's numbers. */
static void check_names(void) {
  static const char *const funcs[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"};
  static const char *const algos[] = {"TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"};
  static const char *const protos[] = {"LL", "LL128", "SIMPLE"};
  static const unsigned bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  for (int i = 0; i < (int)COUNT(funcs); i++)
    if (dyn_func_number(funcs[i]) != i) FAIL("%s is %d", funcs[i], dyn_func_number(funcs[i]));
  for (int i = 0; i < (int)COUNT(algos); i++)
    if (dyn_algorithm_number(algos[i]) != i) FAIL("%s is %d", algos[i], dyn_algorithm_number(algos[i]));
  for (int i = 0; i < (int)COUNT(protos); i++)
    if (dyn_protocol_number(protos[i]) != i) FAIL("%s is %d", protos[i], dyn_protocol_number(protos[i]));
  for (int i = 0; i < (int)COUNT(bytes); i++)
    if (dyn_datatype_number_bytes(i) != bytes[i]) FAIL("datatype %d has %u bytes", i, dyn_datatype_number_bytes(i));
  if (dyn_datatype_number_bytes(12) != 0 || dyn_datatype_number_bytes(-1) != 0) FAIL("a datatype that is none");
}

int main(void) {
  char source[] = __FILE__, path[PATH_MAX], line[256], version[32], type[64], field[64];
  long offset, size, lines = 0;
  snprintf(path, sizeof path, "%s/testdata/nccl_abi_facts.txt", dirname(source));
  FILE *file = fopen(path, "r");
  if (file == NULL) return perror(path), 1;
  while (fgets(line, sizeof line, file) != NULL) {
    if (line[0] == '#') continue;
    if (sscanf(line, "%31s %63s %63s %ld %ld", version, type, field, &offset, &size) != 5) {
      FAIL("not a fact: %s", line);
      continue;
    }
    lines++;
    check_fact(version, type, field, offset, size);
  }
  fclose(file);
  if (lines < 2000) FAIL("only %ld facts in %s", lines, path);
  for (size_t i = 0; i < COUNT(fields); i++)
    if (!fields[i].met) FAIL("no release has %s.%s", fields[i].type, fields[i].field);
  for (size_t i = 0; i < COUNT(values); i++)
    if (!values[i].met) FAIL("no release has %s", values[i].field);
  check_names();
  if (failures != 0) fprintf(stderr, "%d differences between our structs and NCCL's\n", failures);
  return failures != 0;
}
