/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes wrong on purpose. FAKEGPU_FAULT is a list of KIND:KEY=VALUE,KEY=VALUE..., semicolons between:
 *   hang    the collective never ends        wrong   one element of the result is wrong
 *   fail    the call returns an error        skip    the result is not written
 *   die     the process is killed
 * and when, all that is named together:
 *   rank=R                      on this rank; without, on all
 *   comm=N                      of the process's N-th communicator, from 0; without, of all
 *   from=N, to=M                calls N to M-1 of the communicator, from 0; one call of a captured graph counts once
 *   collective=C, bytes=B       as getCollInfo sees them
 *   algorithm=A, protocol=P     what runs: TREE, RING ...; LL, LL128, SIMPLE
 *   once=FILE                   the first time of all, for all processes: FILE is made then
 * Example: hang:rank=1,collective=AllReduce,bytes=65536,algorithm=TREE
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "nccl_fake.h"

#define MAX_RULES 16
enum { KIND_DIE = 16 };

static struct rule {
  int kind, rank, comm, func, algo, proto;
  uint64_t from, to, bytes;
  const char *once;
} rules[MAX_RULES];
static int numRules;
static const char *wrong;
static pthread_once_t parsed = PTHREAD_ONCE_INIT;

static int whole(const char *text, uint64_t *value) {
  char *end;
  *value = strtoull(text, &end, 10);
  return *text >= '0' && *text <= '9' && *end == '\0';
}

static int index_of(const char *text, const char *(*name)(int), int n) {
  for (int i = 0; i < n; i++)
    if (strcasecmp(text, name(i)) == 0) return i;
  return -1;
}

static int set(struct rule *rule, const char *key, const char *value) {
  uint64_t number = 0;
  int isNumber = whole(value, &number);
  if (strcmp(key, "rank") == 0) return rule->rank = (int)number, isNumber;
  if (strcmp(key, "comm") == 0) return rule->comm = (int)number, isNumber;
  if (strcmp(key, "from") == 0) return rule->from = number, isNumber;
  if (strcmp(key, "to") == 0) return rule->to = number, isNumber;
  if (strcmp(key, "bytes") == 0) return rule->bytes = number, isNumber;
  if (strcmp(key, "once") == 0) return rule->once = value, 1;
  if (strcmp(key, "algorithm") == 0) return (rule->algo = index_of(value, tuning_algo_name, NUM_ALGOS)) >= 0;
  if (strcmp(key, "protocol") == 0) return (rule->proto = index_of(value, tuning_proto_name, NUM_PROTOS)) >= 0;
  if (strcmp(key, "collective") != 0) return 0;
  rule->func = strcmp(value, "AllToAll") == 0 ? FUNC_ALLTOALL : table_collective(value);
  return rule->func >= 0;
}

static int parse_rule(char *text, struct rule *rule) {
  static const struct { const char *name; int kind; } kinds[] = {
      {"hang", FAULT_HANG}, {"wrong", FAULT_WRONG}, {"fail", FAULT_FAIL}, {"skip", FAULT_SKIP}, {"die", KIND_DIE}};
  *rule = (struct rule){.rank = -1, .comm = -1, .func = -1, .algo = -1, .proto = -1, .to = UINT64_MAX};
  char *name = strsep(&text, ":"), *part;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(name, kinds[i].name) == 0) rule->kind = kinds[i].kind;
  while (text != NULL && (part = strsep(&text, ",")) != NULL) {
    char *value = strchr(part, '=');
    if (value == NULL) return 0;
    *value++ = '\0';
    if (!set(rule, part, value)) return 0;
  }
  /* A choice is known after the tuner was asked: too late to fail a call as NCCL would. */
  return rule->kind != 0 && !(rule->kind == FAULT_FAIL && (rule->algo >= 0 || rule->proto >= 0));
}

static void parse(void) {
  const char *text = getenv("FAKEGPU_FAULT");
  char *rest = text == NULL ? NULL : strdup(text), *one;
  while (rest != NULL && wrong == NULL && (one = strsep(&rest, ";")) != NULL) {
    if (numRules == MAX_RULES) wrong = "at most 16 faults";
    else if (!parse_rule(one, &rules[numRules++])) wrong = "want KIND:KEY=VALUE,... as nccl_fault.c has them";
  }
}

const char *nccl_faults_wrong(void) {
  pthread_once(&parsed, parse);
  return wrong;
}

static int matches(const struct rule *rule, const struct fault_point *p, int before) {
  int choice = rule->algo >= 0 || rule->proto >= 0;
  if (choice == before) return 0;
  if (rule->rank >= 0 && rule->rank != p->rank) return 0;
  if (rule->comm >= 0 && rule->comm != p->comm) return 0;
  if (rule->func >= 0 && rule->func != p->func) return 0;
  if (rule->bytes != 0 && rule->bytes != p->bytes) return 0;
  if (p->call < rule->from || p->call >= rule->to) return 0;
  return (rule->algo < 0 || rule->algo == p->algo) && (rule->proto < 0 || rule->proto == p->proto);
}

static int first_time(const char *path) {
  if (path == NULL) return 1;
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

int nccl_faults(const struct fault_point *point, int before) {
  int found = 0;
  pthread_once(&parsed, parse);
  for (int i = 0; i < numRules; i++) {
    if (!matches(&rules[i], point, before) || !first_time(rules[i].once)) continue;
    if (rules[i].kind == KIND_DIE) kill(getpid(), SIGKILL);
    found |= rules[i].kind;
  }
  return found;
}
