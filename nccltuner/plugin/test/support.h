/* SPDX-License-Identifier: Apache-2.0
 *
 * What the C tests share. They are linked with the library's own objects, so they see its inside as well as NCCL's
 * entry points.
 */
#ifndef DYN_TEST_SUPPORT_H
#define DYN_TEST_SUPPORT_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "../comm.h"
#include "../nccl_tuner_abi.h"
#include "../plan.h"

#define check(condition, ...) \
  do { \
    if (!(condition)) { \
      fprintf(stderr, "%s:%d: failed: %s: ", __FILE__, __LINE__, #condition); \
      fprintf(stderr, __VA_ARGS__); \
      fprintf(stderr, "\n"); \
      exit(1); \
    } \
  } while (0)

extern const struct dyn_nccl_tuner_v2 ncclTunerPlugin_v2;
extern const struct dyn_nccl_tuner_v3 ncclTunerPlugin_v3;
extern const struct dyn_nccl_tuner_v4 ncclTunerPlugin_v4;
extern const struct dyn_nccl_tuner_v5 ncclTunerPlugin_v5;
extern const struct dyn_nccl_tuner_v6 ncclTunerPlugin_v6;

#define TEST_ALGORITHMS 7
#define TEST_PROTOCOLS 3

#define ACTION(algo, proto, channels) \
  (DYN_PATH_COLLECTIVE | (algo) << DYN_ACTION_ALGO_SHIFT | (proto) << DYN_ACTION_PROTO_SHIFT | \
   (channels) << DYN_ACTION_CHANNELS_SHIFT)

/* Runs a test in a process of its own, which is to end with 0, and says so: {"GROUP":"NAME"}. */
void test_in_child(const char *group, const char *name, void (*test)(void));

/* A new private directory, set as DYNAMICCL_DIR; removed with what is in it by test_remove_directory. */
const char *test_directory(void);
void test_remove_directory(void);
int test_count_files(const char *prefix);
void test_record_path(uint64_t commId, char *out, size_t size);

/* From the environment's TEST_SEED, else fixed; printed. */
uint64_t test_seed(void);
uint64_t test_random(uint64_t *state);

/* Keeps the last message for test_last_message, and prints it when TEST_VERBOSE is set. */
void test_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...);
const char *test_last_message(void);

/* One call of a v6 tuner with costs of 1.0 and these entries marked -1; what it chose as an action, 0: nothing. */
uint32_t test_call(void *context, int collective, size_t bytes, uint32_t marked);

/* ---- a daemon for tests: decision 4 of docs/design.md, in C ---- */

struct publisher {
  struct dyn_record *record;
  size_t bytes;
  uint64_t version;
  uint64_t superseded[DYN_NUM_PLANS]; /* frontier's epoch, read after the buffer stopped being the newest */
};

bool publisher_open(struct publisher *p, uint64_t commId); /* false: no complete record */
void publisher_close(struct publisher *p);
/* Fills in version and checksum. False: no buffer is free now. */
bool publisher_publish(struct publisher *p, struct dyn_plan *plan);
void plan_clear(struct dyn_plan *plan);
void plan_random(struct dyn_plan *plan, uint64_t *random, uint32_t firstId);

#endif
