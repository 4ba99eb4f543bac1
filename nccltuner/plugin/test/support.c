/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[256], lastMessage[1024];

void test_in_child(const char *group, const char *name, void (*test)(void)) {
  int status;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    test();
    exit(0);
  }
  check(waitpid(child, &status, 0) == child && status == 0, "%s: status %x", name, status);
  printf("{\"%s\":\"%s\"}\n", group, name);
}

const char *test_directory(void) {
  const char *base = getenv("TEST_DIR"); /* a tmpfs, as /run is, where there is one */
  if (!base || !*base) base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  snprintf(directory, sizeof directory, "%s/dynamiccl-test-XXXXXX", base);
  check(mkdtemp(directory), "mkdtemp %s", directory);
  setenv("DYNAMICCL_DIR", directory, 1);
  setvbuf(stdout, NULL, _IOLBF, 0); /* or a forked child prints its parent's lines again */
  return directory;
}

void test_remove_directory(void) {
  char path[600];
  DIR *d = opendir(directory);
  for (struct dirent *e; d && (e = readdir(d));) {
    snprintf(path, sizeof path, "%s/%s", directory, e->d_name);
    if (e->d_name[0] != '.') unlink(path);
  }
  if (d) closedir(d);
  rmdir(directory);
}

int test_count_files(const char *prefix) {
  int count = 0;
  DIR *d = opendir(directory);
  for (struct dirent *e; d && (e = readdir(d));) count += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
  if (d) closedir(d);
  return count;
}

void test_record_path(uint64_t commId, char *out, size_t size) {
  snprintf(out, size, "%s/comm-%016" PRIx64 ".shm", directory, commId);
}

uint64_t test_seed(void) {
  const char *set = getenv("TEST_SEED");
  uint64_t seed = set ? strtoull(set, NULL, 0) : 20251121;
  fprintf(stderr, "TEST_SEED=%" PRIu64 "\n", seed);
  return seed;
}

/* splitmix64, Steele, Lea, Flood 2014 */
uint64_t test_random(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

void test_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...) {
  va_list args;
  (void)level, (void)flags, (void)file, (void)line;
  va_start(args, fmt);
  vsnprintf(lastMessage, sizeof lastMessage, fmt, args);
  va_end(args);
  if (getenv("TEST_VERBOSE")) fprintf(stderr, "log: %s\n", lastMessage);
}

const char *test_last_message(void) { return lastMessage; }

uint32_t test_call(void *context, int collective, size_t bytes, uint32_t marked) {
  float costs[TEST_ALGORITHMS * TEST_PROTOCOLS];
  int channels = 0;
  for (int i = 0; i < TEST_ALGORITHMS * TEST_PROTOCOLS; i++) costs[i] = marked >> i & 1 ? -1.0f : 1.0f;
  int result = ncclTunerPlugin_v6.getCollInfo(context, collective, bytes, 1, (float **)costs, TEST_ALGORITHMS,
                                              TEST_PROTOCOLS, 0, &channels);
  check(result == DYN_NCCL_SUCCESS, "getCollInfo returned %d", result);
  for (int i = 0; i < TEST_ALGORITHMS * TEST_PROTOCOLS; i++)
    if (costs[i] == 0.0f) return (uint32_t)ACTION(i / TEST_PROTOCOLS, i % TEST_PROTOCOLS, channels);
  check(channels == 0, "channels without an algorithm");
  return 0;
}

bool publisher_open(struct publisher *p, uint64_t commId) {
  char path[512];
  struct stat st;
  memset(p, 0, sizeof *p);
  test_record_path(commId, path, sizeof path);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  bool whole = fstat(fd, &st) == 0 && (size_t)st.st_size >= sizeof *p->record;
  p->bytes = (size_t)st.st_size;
  void *memory = whole ? mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  if (memory == MAP_FAILED) return false;
  p->record = memory;
  if (__atomic_load_n(&p->record->header.magic, __ATOMIC_ACQUIRE) != DYN_RECORD_MAGIC) {
    publisher_close(p);
    return false;
  }
  /* Who published before us may have died right after storing newest: nothing is known about when a buffer stopped
   * being it, so all did just now. */
  p->version = __atomic_load_n(&p->record->newest, __ATOMIC_SEQ_CST) >> 8;
  uint64_t epoch = __atomic_load_n(&p->record->frontier, __ATOMIC_SEQ_CST) >> 8;
  for (int b = 0; b < DYN_NUM_PLANS; b++) p->superseded[b] = epoch;
  return true;
}

void publisher_close(struct publisher *p) {
  if (p->record) munmap(p->record, p->bytes);
  p->record = NULL;
}

static int free_buffer(const struct publisher *p) {
  struct dyn_record *r = p->record;
  const struct dyn_rank *ranks = (const struct dyn_rank *)(r + 1);
  uint64_t slowest = UINT64_MAX, newest = __atomic_load_n(&r->newest, __ATOMIC_SEQ_CST) & 255;
  uint32_t named = 0;
  /* Frontier, positions, log: the daemon's order (nccltuner/publisher.go), which the exhaustive check runs as well. */
  uint64_t frontier = __atomic_load_n(&r->frontier, __ATOMIC_SEQ_CST);
  for (uint32_t i = 0; i < r->nRanks; i++) {
    uint64_t position = __atomic_load_n(&ranks[i].position, __ATOMIC_SEQ_CST);
    if (position == UINT64_MAX) continue;
    if (position >> 8 < slowest) slowest = position >> 8;
    if (position & 255) named |= 1u << ((position & 255) - 1);
  }
  for (uint32_t i = 0; i < DYN_NUM_CHANGES; i++) {
    uint64_t change = __atomic_load_n(&r->changes[((frontier & 255) + 256 - i) % DYN_NUM_CHANGES], __ATOMIC_SEQ_CST);
    if (change & 255) named |= 1u << ((change & 255) - 1);
    if (change >> 8 <= slowest) break;
  }
  for (int b = 0; b < DYN_NUM_PLANS; b++) {
    bool used = r->plans[b].version != 0;
    if ((uint64_t)b + 1 == newest || named >> b & 1 || (used && frontier >> 8 <= p->superseded[b])) continue;
    return b;
  }
  return -1;
}

bool publisher_publish(struct publisher *p, struct dyn_plan *plan) {
  struct dyn_record *r = p->record;
  int b = free_buffer(p);
  if (b < 0) return false;
  uint64_t old = __atomic_load_n(&r->newest, __ATOMIC_SEQ_CST) & 255;
  plan->version = p->version + 1;
  plan->checksum = dyn_plan_checksum(plan);
  memcpy(&r->plans[b], plan, sizeof *plan);
  __atomic_store_n(&r->newest, plan->version << 8 | (uint64_t)(b + 1), __ATOMIC_SEQ_CST);
  p->version++;
  if (old) p->superseded[old - 1] = __atomic_load_n(&r->frontier, __ATOMIC_SEQ_CST) >> 8;
  return true;
}

void plan_clear(struct dyn_plan *plan) {
  memset(plan, 0, sizeof *plan);
  plan->numEntries = 1;
}

static uint32_t random_action(uint64_t *random) {
  uint64_t r = test_random(random);
  if (r % 8 == 0) return 0;
  return (uint32_t)ACTION(r >> 8 & 1, (r >> 16) % TEST_PROTOCOLS, (r >> 24) % 33);
}

void plan_random(struct dyn_plan *plan, uint64_t *random, uint32_t firstId) {
  plan_clear(plan);
  plan->numEntries = 2 + test_random(random) % (DYN_NUM_ENTRIES - 2);
  plan->sampleEvery = 1u << test_random(random) % 4;
  for (uint32_t i = 1; i < plan->numEntries; i++) {
    plan->entries[i].id = test_random(random) % 4 ? firstId + i : i; /* some trials go on in the next plan */
    plan->entries[i].base = random_action(random);
    plan->entries[i].numTrials = test_random(random) % (DYN_NUM_TRIALS + 1);
    plan->entries[i].skip = test_random(random) % 4 ? 0 : test_random(random) % (DYN_MAX_SKIP + 1);
    for (int t = 0; t < DYN_NUM_TRIALS; t++) plan->entries[i].trials[t] = random_action(random);
  }
  for (int c = 0; c < DYN_NUM_COLLECTIVES; c++)
    for (int b = 0; b < DYN_NUM_BUCKETS; b++)
      plan->index[c][b] = test_random(random) % 4 ? 1 + test_random(random) % (plan->numEntries - 1) : 0;
}
