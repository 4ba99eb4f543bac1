/* SPDX-License-Identifier: Apache-2.0
 *
 * dynamiccl-worker: options, the loop over commands, and the ways in which it ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "worker.h"

static int replies = -1; /* what standard output was */

static const char usage[] =
    "dynamiccl-worker is one rank of what `dynamiccld sweep` and `dynamiccld calibrate` measure: it reads one\n"
    "command a line on standard input and writes one reply a line on standard output, both JSON objects.\n\n"
    "  dynamiccl-worker --rank R --ranks N --device D [--per-node P] [--nccl FILE] [--max-bytes B]\n"
    "                   [--cpus C] [--registered 1]\n\n"
    "  --rank R       this rank, from 0\n"
    "  --ranks N      ranks of the communicator, 1 to 64\n"
    "  --device D     GPU, counted from 0 among the visible ones\n"
    "  --per-node P   ranks of one of several nodes: where so many GPUs are visible, --device may go around (0: it may not)\n"
    "  --nccl FILE    libnccl to measure (libnccl.so.2)\n"
    "  --max-bytes B  largest size that can be asked for (268435456); twice as much GPU memory is taken\n"
    "  --cpus C       run on C CPUs that no other rank of this communicator has (0: on any)\n"
    "  --registered 1 buffers are memory of NCCL's own, registered for symmetric kernels (0: they are not)\n\n"
    "  {\"do\":\"id\"}                    rank 0 makes the id that every rank's init needs\n"
    "  {\"do\":\"init\",\"id\":ID}          communicator and buffers; up to 8 ids behind each other: a communicator of each, which\n"
    "                                 call makes calls on in turn, and of which mode graph captures at once and replays in turn\n"
    "  {\"do\":\"call\",\"collective\":C,\"bytes\":B,\"calls\":K}\n"
    "  {\"do\":\"measure\",\"collective\":C,\"bytes\":B,\"mode\":\"graph\", \"stream\", \"free\" or \"host\",\"calls\":K,\n"
    "   \"replays\":R,\"min_replays\":M,\"budget_us\":T,\"warm_us\":W}   and \"memory\":\"nccl\": in buffers of NCCL's own\n"
    "                                 that nobody registered; the first time takes twice as much GPU memory again\n"
    "  {\"do\":\"load\",\"kind\":\"none\", \"compute\" or \"copy\"}   runs while measure times replays\n"
    "  {\"do\":\"destroy\"}               the communicators; init may follow\n"
    "  {\"do\":\"bye\"}                   the end; so is the end of standard input, even in the middle of a command\n\n"
    "C is AllReduce, AllGather, ReduceScatter, Broadcast, Reduce or AllToAll; bytes are nccl-tests'.\n"
    "Exit codes: 0 done; 1 CUDA or NCCL failed, after a reply that says how; 2 wrong options.\n";

int worker_fail(struct worker *worker, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(worker->error, sizeof worker->error, format, args);
  va_end(args);
  return -1;
}

/* A field that must be a text; NULL with an error. */
static const char *text_of(struct worker *worker, const struct json *json, const char *name) {
  const struct json_field *field = json_find(json, name);
  if (field != NULL && field->kind == JSON_TEXT) return field->text;
  worker_fail(worker, "field %s: want a text", name);
  return NULL;
}

static int number_of(struct worker *worker, const struct json *json, const char *name, double min, double max,
                     int whole, double *value) {
  const struct json_field *field = json_find(json, name);
  if (field == NULL || field->kind != JSON_NUMBER || !(field->number >= min && field->number <= max) ||
      (whole && field->number != floor(field->number)))
    return worker_fail(worker, "field %s: want a %s from %.15g to %.15g", name, whole ? "whole number" : "number", min,
                       max);
  *value = field->number;
  return 0;
}

static int read_shape(struct worker *worker, const struct json *json, struct shape *shape, double *calls) {
  double bytes;
  const char *collective = text_of(worker, json, "collective");
  if (collective == NULL || number_of(worker, json, "bytes", 1, 1e15, 1, &bytes) != 0 ||
      number_of(worker, json, "calls", 1, 100000, 1, calls) != 0)
    return -1;
  if (worker->comm == NULL) return worker_fail(worker, "there is no communicator: send init first");
  return shape_of(worker, collective, bytes, shape);
}

static int do_id(struct worker *worker, const struct json *json, struct reply *reply) {
  (void)json;
  if (worker->rank != 0) return worker_fail(worker, "id: rank 0 makes it, this is rank %d", worker->rank);
  return rank_id(worker, reply);
}

static int do_init(struct worker *worker, const struct json *json, struct reply *reply) {
  const char *id = text_of(worker, json, "id");
  return id == NULL ? -1 : rank_init(worker, id, reply);
}

static int do_destroy(struct worker *worker, const struct json *json, struct reply *reply) {
  (void)json;
  if (rank_destroy(worker) != 0) return -1;
  reply_format(reply, "{\"ok\":true}");
  return 0;
}

static int do_call(struct worker *worker, const struct json *json, struct reply *reply) {
  struct shape shape;
  double calls;
  if (read_shape(worker, json, &shape, &calls) != 0) return -1;
  return measure_call(worker, &shape, (int)calls, reply);
}

static int do_measure(struct worker *worker, const struct json *json, struct reply *reply) {
  struct shape shape;
  static const char *const modes[NUM_MODES] = {"graph", "stream", "free", "host"};
  struct measurement want = {0};
  double calls, replays, least;
  const char *mode = text_of(worker, json, "mode"), *memory = json_find(json, "memory") == NULL ? NULL : text_of(worker, json, "memory");
  if (mode == NULL || (memory == NULL && json_find(json, "memory") != NULL)) return -1;
  if (memory != NULL && strcmp(memory, "nccl") != 0) return worker_fail(worker, "memory \"%.40s\": want nccl, or no field", memory);
  if (memory != NULL && worker->registered) return worker_fail(worker, "memory \"nccl\": that of --registered is NCCL's already");
  while (want.mode < NUM_MODES && strcmp(modes[want.mode], mode) != 0) want.mode++;
  if (want.mode == NUM_MODES) return worker_fail(worker, "mode \"%.40s\": want graph, stream, free or host", mode);
  if (want.mode != MODE_GRAPH && worker->numComms > 1)
    return worker_fail(worker, "mode \"%s\": with %d communicators want graph; init with one id for others", mode, worker->numComms);
  if (number_of(worker, json, "replays", 1, 10000, 1, &replays) != 0 ||
      number_of(worker, json, "min_replays", 1, replays, 1, &least) != 0 ||
      number_of(worker, json, "warm_us", 0, 1e9, 0, &want.warmUs) != 0 ||
      number_of(worker, json, "budget_us", 0, 1e9, 0, &want.budgetUs) != 0 ||
      read_shape(worker, json, &shape, &calls) != 0)
    return -1;
  want.calls = (int)calls;
  want.replays = (int)replays;
  want.minReplays = (int)least;
  if (memory != NULL && rank_exchange(worker) != 0) return -1;
  int failed = measure(worker, &shape, &want, reply);
  return memory == NULL || rank_exchange(worker) == 0 ? failed : -1;
}

static int do_load(struct worker *worker, const struct json *json, struct reply *reply) {
  const char *kind = text_of(worker, json, "kind");
  if (kind == NULL || load_choose(worker, kind) != 0) return -1;
  reply_format(reply, "{\"ok\":true}");
  return 0;
}

static int do_bye(struct worker *worker, const struct json *json, struct reply *reply) {
  (void)worker, (void)json, (void)reply;
  _exit(0); /* without tidying up: that waits for ranks that may be gone */
}

static const struct command {
  const char *name, *fields;
  int (*run)(struct worker *worker, const struct json *json, struct reply *reply);
} commands[] = {
    {"id", " do ", do_id},
    {"init", " do id ", do_init},
    {"destroy", " do ", do_destroy},
    {"call", " do collective bytes calls ", do_call},
    {"measure", " do collective bytes calls mode memory replays min_replays warm_us budget_us ", do_measure},
    {"load", " do kind ", do_load},
    {"bye", " do ", do_bye},
};

static int run_line(struct worker *worker, char *line, struct reply *reply) {
  struct json json;
  char known[64];
  const struct command *command = NULL;
  const char *wrong = json_parse(&json, line), *name;
  if (wrong != NULL) return worker_fail(worker, "command: %s", wrong);
  if ((name = text_of(worker, &json, "do")) == NULL) return -1;
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    if (strcmp(commands[i].name, name) == 0) command = &commands[i];
  if (command == NULL)
    return worker_fail(worker, "do \"%.40s\": want id, init, call, measure, load, destroy or bye", name);
  for (int i = 0; i < json.n; i++) {
    snprintf(known, sizeof known, " %.40s ", json.fields[i].name);
    if (strstr(command->fields, known) == NULL)
      return worker_fail(worker, "field %.40s: %s has none of this name, only%s", json.fields[i].name, name,
                         command->fields);
  }
  return command->run(worker, &json, reply);
}

static void send_reply(struct reply *reply) {
  reply_format(reply, "\n");
  for (size_t at = 0; at < reply->used;) {
    ssize_t n = write(replies, reply->text + at, reply->used - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) _exit(0); /* nobody listens any more */
    at += (size_t)n;
  }
  reply->used = 0;
}

static void loop(struct worker *worker) {
  struct reply reply = {0};
  char *line = NULL;
  size_t room = 0;
  for (ssize_t n; (n = getline(&line, &room, stdin)) > 0;) {
    int failed = strlen(line) != (size_t)n ? worker_fail(worker, "command: want no zero byte")
                                           : run_line(worker, line, &reply);
    if (failed) {
      reply.used = 0;
      reply_format(&reply, "{\"error\":");
      reply_quote(&reply, worker->error);
      reply_format(&reply, "}");
    }
    send_reply(&reply);
    if (worker->unusable) _exit(1);
  }
  _exit(0);
}

/* A rank whose peers are gone waits inside NCCL for ever; the end of its parent must reach it there. */
static void *watch(void *argument) {
  (void)argument;
  struct pollfd ends[] = {{.fd = STDIN_FILENO}, {.fd = replies}}; /* hang-ups and errors are told unasked */
  while (poll(ends, 2, -1) < 0 && errno == EINTR) continue;
  /* What is there but not read yet may be an order to end: half a second is for that, none for anything longer. */
  if (!(ends[1].revents & (POLLERR | POLLNVAL))) usleep(500000);
  _exit(0);
}

/* Only the first ones of this rank's share of the CPUs, before any thread is made. Processes that are compared run by turns
 * on the same ones then: which CPUs a process had happened to get made up to 6% of a call (2x H200, sockets). */
static int stay(struct worker *worker, int cpus) {
  cpu_set_t allowed, mine;
  if (cpus == 0) return 0;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return worker_fail(worker, "CPUs: %s", strerror(errno));
  if (CPU_COUNT(&allowed) < cpus * worker->nRanks)
    return worker_fail(worker, "option --cpus %d: want at most %d, for there are %d and so many ranks", cpus,
                       CPU_COUNT(&allowed) / worker->nRanks, CPU_COUNT(&allowed));
  CPU_ZERO(&mine);
  for (int cpu = 0, nth = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    if (nth >= worker->rank * cpus && nth < (worker->rank + 1) * cpus) CPU_SET(cpu, &mine);
    nth++;
  }
  if (sched_setaffinity(0, sizeof mine, &mine) != 0) return worker_fail(worker, "CPUs: %s", strerror(errno));
  return 0;
}

static int parse(struct worker *worker, int argc, char **argv) {
  enum { NUMBERS = 7 };
  double values[NUMBERS] = {-1, -1, -1, 256u << 20, 0, 0, 0};
  static const char *const names[] = {"--rank", "--ranks", "--device", "--max-bytes", "--cpus", "--registered", "--per-node"};
  static const double least[] = {0, 1, 0, 4096, 0, 0, 0}, most[] = {MAX_RANKS - 1, MAX_RANKS, 1023, 1e13, CPU_SETSIZE, 1, MAX_RANKS};
  for (int i = 1; i < argc; i += 2) {
    int which = 0;
    if (strcmp(argv[i], "--help") == 0) {
      fputs(usage, stdout);
      exit(0);
    }
    while (which < NUMBERS && strcmp(argv[i], names[which]) != 0) which++;
    if (which == NUMBERS && strcmp(argv[i], "--nccl") != 0) return worker_fail(worker, "unknown option %s", argv[i]);
    if (i + 1 == argc) return worker_fail(worker, "option %s: want a value", argv[i]);
    if (which == NUMBERS) {
      worker->ncclPath = argv[i + 1];
      continue;
    }
    char *end;
    double value = strtod(argv[i + 1], &end);
    if (end == argv[i + 1] || *end != '\0' || !(value >= least[which] && value <= most[which]) || value != floor(value))
      return worker_fail(worker, "option %s %s: want a whole number from %.15g to %.15g", argv[i], argv[i + 1],
                         least[which], most[which]);
    values[which] = value;
  }
  for (int i = 0; i < NUMBERS; i++)
    if (values[i] < 0) return worker_fail(worker, "option %s is missing", names[i]);
  if (values[0] >= values[1]) return worker_fail(worker, "option --rank: want a rank below --ranks");
  worker->rank = (int)values[0];
  worker->nRanks = (int)values[1];
  worker->device = (int)values[2];
  worker->maxBytes = ((size_t)values[3] + 63) / 64 * 64; /* shares of three ranks are no round number, and what is asked for must fit */
  worker->registered = (int)values[5];
  worker->perNode = (int)values[6];
  return stay(worker, (int)values[4]);
}

int main(int argc, char **argv) {
  static struct worker worker;
  pthread_t watcher;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_IGN);
  if (parse(&worker, argc, argv) != 0) {
    fprintf(stderr, "dynamiccl-worker: %s: see --help\n", worker.error);
    return 2;
  }
  /* NCCL and its plugins may write to standard output; that goes to standard error from here on. */
  replies = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (replies < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0 || pthread_create(&watcher, NULL, watch, NULL) != 0) {
    fprintf(stderr, "dynamiccl-worker: standard output or a thread: %s\n", strerror(errno));
    return 2;
  }
  loop(&worker);
}
