/* SPDX-License-Identifier: Apache-2.0
 *
 * Command line. One table gives names, ranges and help, so that usage and parser cannot drift apart.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

enum kind { HEADING, FLAG, WHOLE, REAL, TEXT, SPECIAL };
struct option_row {
  enum kind kind;
  const char *name, *metavar;
  size_t offset;
  double min, max;
  const char *help;
};

#define AT(field) offsetof(struct options, field)

/* WHOLE fields are int or uint64_t; which one follows from is_long. */
static int is_long(size_t offset) {
  return offset == AT(seed) || offset == AT(calls) || offset == AT(maxBytes) || offset == AT(window) ||
         offset == AT(churn);
}

static const struct option_row rows[] = {
    {HEADING, "Ranks", NULL, 0, 0, 0, NULL},
    {WHOLE, "rank", "R", AT(rank), 0, 63, "first rank of this process (0)"},
    {WHOLE, "threads", "N", AT(threads), 1, 64, "ranks of this process, one thread each, R to R+N-1 (1)"},
    {FLAG, "spawn", NULL, AT(spawn), 0, 0, "start a process for every N ranks and wait for all; no --rank, no --sync"},
    {WHOLE, "nranks", "N", AT(nRanks), 2, 64, "ranks of a communicator (as in the first table)"},
    {WHOLE, "nnodes", "N", AT(nNodes), 1, 64, "nodes of a communicator (as in the first table)"},
    {TEXT, "sync", "FILE", AT(syncPath), 0, 0, "shared by all processes of one run, new for every run; needed when\n"
     "ranks are started one by one"},
    {WHOLE, "window", "CALLS", AT(window), 0, 1e12, "no rank gets further ahead of another; 0: no bound (64)"},
    {SPECIAL, "join-late", "RANK:CALLS", 0, 0, 0, "RANK creates its communicators after the others made CALLS calls"},
    {SPECIAL, "leave", "RANK:CALL", 0, 0, 0, "RANK exits at this call without finalize (exit code 5)"},
    {REAL, "rate", "N", AT(rate), 0, 1e9, "calls a second of a rank in real time; 0: as fast as possible (0)"},
    {SPECIAL, "stall", "P,US", 0, 0, 0, "sleep up to US microseconds before or after getCollInfo, probability P"},

    {HEADING, "Programs", NULL, 0, 0, 0, NULL},
    {TEXT, "table", "CSV", AT(tablePath), 0, 0, "recorded costs; with --calls the only phase of the run"},
    {SPECIAL, "phase", "CSV:CALLS", 0, 0, 0, "CALLS calls with the costs of CSV; repeat it: the table changes"},
    {WHOLE, "calls", "N", AT(calls), 1, 1e12, "calls of a rank over all communicators, with --table (10000)"},
    {TEXT, "workload", "W", AT(workload), 0, 0, "common: every size that all tables have; phase: every size of the\n"
     "phase's table; or a file of lines COLLECTIVE,BYTES,WEIGHT (common)"},
    {WHOLE, "max-bytes", "N", AT(maxBytes), 1, 1e15, "leave out larger sizes of common and phase"},
    {WHOLE, "comms", "N", AT(comms), 1, MAX_COMMS, "communicators of a rank, all alive at once (1)"},
    {SPECIAL, "group", "K[,P]", 0, 0, 0, "with probability P (1) a call is an ncclGroup of K collectives that share\n"
     "one getCollInfo call; its cost is that of K times the bytes"},
    {WHOLE, "churn", "N", AT(churn), 1, 1e9, "instead of a workload: create and destroy N communicators"},
    {WHOLE, "churn-calls", "N", AT(churnCalls), 0, 1e6, "collectives on each of them (1)"},
    {TEXT, "job", "NAME", AT(job), 0, 0, "part of the communicator ids: runs at the same time need different names"},
    {WHOLE, "seed", "N", AT(seed), 0, 1.8e19, "of everything random (1)"},

    {HEADING, "Virtual time", NULL, 0, 0, 0, NULL},
    {REAL, "noise", "SIGMA", AT(model.noise), 0, 5, "lognormal noise of a group's cost (0.05)"},
    {SPECIAL, "tail", "P,SCALE", 0, 0, 0, "with probability P the cost grows by an exponential factor of mean SCALE"},
    {REAL, "skew", "US", AT(model.skewUs), 0, 1e6, "mean difference of arrival between ranks (2)"},
    {SPECIAL, "late", "P,US", 0, 0, 0, "with probability P a rank arrives late by an exponential time of mean US"},
    {REAL, "gap", "US", AT(model.gapUs), 0, 1e9, "computing between two calls (10)"},
    {REAL, "counter-frac", "F", AT(model.counterFrac), 0.01, 1, "share of the cost at which sends are done, over a\n"
     "network (0.7)"},
    {SPECIAL, "fault", "KIND:US[@FROM[-TO]]", 0, 0, 0, "repeatable, calls FROM to TO: remote-side (adds to signal),\n"
     "slow-rank=R (R arrives late), backend-fallback (adds to both), congestion\n"
     "(US for each MiB, both), cpu-contention (0 to 4 times US, both), counter"},

    {HEADING, "NCCL", NULL, 0, 0, 0, NULL},
    {SPECIAL, "nccl", "VERSION", 0, 0, 0, "2.28.9, 2.29.2, 2.29.7, 2.30.7, 2.31.2, 2.32.3, or 2.20.5, which has no plugins of today's (2.30.7)"},
    {WHOLE, "max-channels", "N", AT(maxChannels), 1, 64, "comm->nChannels: no collective runs on more (32)"},
    {SPECIAL, "net-path", "P", 0, 0, 0, "pxn: LL128 may cross the network; phb: NCCL marks it -1 there (phb)"},
    {REAL, "regbuff", "P", AT(regBuff), 0, 1, "probability that a rank's buffers are registered; ranks differ (0.5)"},
    {WHOLE, "max-tuner-abi", "V", AT(maxTunerAbi), 2, 6, "look for no newer tuner: 4 with profiler 4 is NCCL 2.27"},
    {WHOLE, "max-profiler-abi", "V", AT(maxProfilerAbi), 1, 7, "look for no newer profiler"},
    {WHOLE, "proxy-lag", "N", AT(proxyLag), 0, 1000, "collectives that the proxy thread lags behind (4)"},
    {FLAG, "require-plugin", NULL, AT(requirePlugin), 0, 0, "fail when no tuner or no profiler was found"},

    {HEADING, "Output", NULL, 0, 0, 0, NULL},
    {TEXT, "log", "FILE", AT(logPath), 0, 0, "binary log of every choice (log.h); %r in FILE is the rank"},
    {SPECIAL, "summary", "[=FILE]", 0, 0, 0, "sums by phase and bucket as JSON lines at exit; %r as above"},
    {FLAG, "measure", NULL, AT(measure), 0, 0, "time every getCollInfo call (in the summary)"},
    {FLAG, "selftest", NULL, AT(selftest), 0, 0, "check table, cost model, random numbers and schedule, then exit"},
    {SPECIAL, "help", NULL, 0, 0, 0, "this text"},
};
#define NUM_ROWS (sizeof rows / sizeof *rows)

void options_usage(FILE *out) {
  fprintf(out,
          "dynamiccl-rank stands in for NCCL in a rank process: it loads the tuner and profiler plugins by NCCL's\n"
          "rules (NCCL_TUNER_PLUGIN, NCCL_PROFILER_PLUGIN), calls them as NCCL does, and takes time\n"
          "from recorded tables.\n\n"
          "  dynamiccl-rank --spawn --table h200x8.csv --calls 100000 --summary\n"
          "  dynamiccl-rank --rank 3 --sync /dev/shm/run1 --phase quiet.csv:9000 --phase load.csv:9000\n");
  for (size_t i = 0; i < NUM_ROWS; i++) {
    const struct option_row *row = &rows[i];
    if (row->kind == HEADING) {
      fprintf(out, "\n%s\n", row->name);
      continue;
    }
    char left[64];
    const char *separator = row->metavar == NULL || row->metavar[0] == '[' ? "" : " ";
    snprintf(left, sizeof left, "--%s%s%s", row->name, separator, row->metavar == NULL ? "" : row->metavar);
    fprintf(out, "  %-28s ", left);
    for (const char *p = row->help; *p != '\0'; p++) {
      fputc(*p, out);
      if (*p == '\n') fprintf(out, "  %-28s ", "");
    }
    fputc('\n', out);
  }
  fprintf(out,
          "\nTables: CSV with the columns machine,nccl,nranks,nnodes,transport,condition,collective,bytes,path,\n"
          "algorithm,protocol,channels,median_us. A size that is not recorded costs what the nearest one in log2\n"
          "costs; between two recorded numbers of channels the cost is linear in log2(channels).\n"
          "NCCL_ALGO and NCCL_PROTO are respected as NCCL does; NCCL_DEBUG=INFO shows what plugins log.\n"
          "Exit codes: 0 done; 2 wrong options or files; 3 another rank of the run died; 4 the plugin broke a rule\n"
          "(an error from getCollInfo, an entry marked -1 chosen) or was required and not found; 5 left by --leave.\n");
}

static int number(const char *text, double *value) {
  char *end;
  errno = 0;
  *value = strtod(text, &end);
  return end != text && *end == '\0' && errno == 0 && isfinite(*value);
}

/* "A,B" or, with one number, "A" and the default of B. */
static int pair(const char *text, char separator, double *a, double *b) {
  char copy[64];
  snprintf(copy, sizeof copy, "%s", text);
  char *second = strchr(copy, separator);
  if (second != NULL) *second++ = '\0';
  return number(copy, a) && (second == NULL || number(second, b)) && (second != NULL || b == NULL || !isnan(*b));
}

static const char *special(struct options *o, const char *name, const char *value) {
  double a, b = NAN;
  if (strcmp(name, "nccl") == 0) {
    int x, y, z, used = 0;
    if (sscanf(value, "%d.%d.%d%n", &x, &y, &z, &used) != 3 || value[used] != '\0')
      return "want 2.20.5, 2.28.9, 2.29.2, 2.29.7, 2.30.7, 2.31.2 or 2.32.3";
    o->ncclVersion = x * 10000 + y * 100 + z;
    int known = o->ncclVersion == 22005 || o->ncclVersion == 22809 || o->ncclVersion == 22902 || o->ncclVersion == 22907 || o->ncclVersion == 23007 || o->ncclVersion == 23102 || o->ncclVersion == 23203;
    return known ? NULL : "want 2.20.5, 2.28.9, 2.29.2, 2.29.7, 2.30.7, 2.31.2 or 2.32.3";
  }
  if (strcmp(name, "net-path") == 0) {
    o->ll128Net = strcmp(value, "pxn") == 0;
    return o->ll128Net || strcmp(value, "phb") == 0 ? NULL : "want pxn or phb";
  }
  if (strcmp(name, "fault") == 0) {
    if (o->model.numFaults == MAX_FAULTS) return "at most 16 faults";
    return timeline_parse_fault(value, &o->model.faults[o->model.numFaults++]);
  }
  if (strcmp(name, "phase") == 0) {
    const char *colon = strrchr(value, ':');
    if (o->numPhases == MAX_PHASES) return "at most 64 phases";
    if (colon == NULL || colon == value || !number(colon + 1, &a) || a < 1 || a != floor(a)) return "want CSV:CALLS";
    o->phases[o->numPhases].path = strndup(value, (size_t)(colon - value));
    o->phases[o->numPhases++].calls = (uint64_t)a;
    return NULL;
  }
  if (strcmp(name, "summary") == 0) {
    o->summary = 1;
    o->summaryPath = *value == '\0' ? NULL : value;
    return NULL;
  }
  char separator = strcmp(name, "join-late") == 0 || strcmp(name, "leave") == 0 ? ':' : ',';
  if (strcmp(name, "group") == 0) b = 1;
  if (!pair(value, separator, &a, &b) || a < 0 || b < 0) return "want two numbers from 0, as in --help";
  if (strcmp(name, "stall") == 0) {
    o->stallShare = a;
    o->stallUs = b;
    return a <= 1 && b <= 1e7 ? NULL : "want a probability up to 1 and at most 10 seconds";
  }
  if (strcmp(name, "tail") == 0) {
    o->model.tailShare = a;
    o->model.tailScale = b;
    return a <= 1 ? NULL : "want a probability up to 1";
  }
  if (strcmp(name, "late") == 0) {
    o->model.lateShare = a;
    o->model.lateUs = b;
    return a <= 1 ? NULL : "want a probability up to 1";
  }
  if (strcmp(name, "group") == 0) {
    o->groupSize = (int)a;
    o->groupShare = b;
    return a >= 2 && a <= 32 && a == floor(a) && b <= 1 ? NULL : "want 2 to 32 collectives and a probability up to 1";
  }
  if (a > 63 || a != floor(a) || b != floor(b)) return "want a rank and a number of calls";
  if (strcmp(name, "join-late") == 0) {
    o->lateRank = (int)a;
    o->lateCalls = (uint64_t)b;
  } else {
    o->leaveRank = (int)a;
    o->leaveCall = (uint64_t)b;
  }
  return NULL;
}

static const char *apply(struct options *o, const struct option_row *row, const char *value) {
  static char message[128];
  double v;
  void *field = (char *)o + row->offset;
  switch (row->kind) {
    case FLAG: *(int *)field = 1; return NULL;
    case TEXT: *(const char **)field = value; return *value == '\0' ? "must not be empty" : NULL;
    case SPECIAL: return special(o, row->name, value);
    default: break;
  }
  if (!number(value, &v) || v < row->min || v > row->max || (row->kind == WHOLE && v != floor(v))) {
    snprintf(message, sizeof message, "want a%s number from %.15g to %.15g", row->kind == WHOLE ? " whole" : "",
             row->min, row->max);
    return message;
  }
  if (row->kind == REAL) *(double *)field = v;
  else if (is_long(row->offset)) *(uint64_t *)field = (uint64_t)v;
  else *(int *)field = (int)v;
  return NULL;
}

static const char *check(const struct options *o) {
  if (o->selftest) return NULL;
  if (o->tablePath == NULL && o->numPhases == 0) return "give --table CSV, or --phase CSV:CALLS once or more";
  if (o->tablePath != NULL && o->numPhases > 0)
    return "--table and --phase exclude each other: write --phase CSV:CALLS";
  if (o->spawn && (o->rank != 0 || o->syncPath != NULL)) return "--spawn starts all ranks: leave out --rank and --sync";
  if (o->lateRank >= 0 && o->window != 0 && o->lateCalls >= o->window)
    return "--join-late: the others cannot make that many calls; raise --window or set it to 0";
  if (o->churn > 0 && (o->lateRank >= 0 || o->leaveRank >= 0 || o->logPath != NULL))
    return "--churn excludes --join-late, --leave and --log";
  return NULL;
}

int options_parse(struct options *o, int argc, char **argv, char *error, size_t errorSize) {
  *o = (struct options){.ncclVersion = 23007, .threads = 1, .comms = 1, .job = "job", .seed = 1, .calls = 10000,
                        .workload = "common", .maxBytes = UINT64_MAX, .groupSize = 1, .window = 64, .lateRank = -1,
                        .leaveRank = -1, .churnCalls = 1, .maxChannels = 32, .regBuff = 0.5, .proxyLag = 4};
  o->model = (struct timeline_model){.noise = 0.05, .skewUs = 2, .gapUs = 10, .counterFrac = 0.7};
  for (int i = 1; i < argc; i++) {
    char *argument = argv[i], *equals = strchr(argument, '=');
    size_t length = equals == NULL ? strlen(argument) : (size_t)(equals - argument);
    const struct option_row *row = NULL;
    for (size_t r = 0; r < NUM_ROWS && length > 2 && strncmp(argument, "--", 2) == 0; r++)
      if (rows[r].kind != HEADING && strlen(rows[r].name) == length - 2 &&
          strncmp(rows[r].name, argument + 2, length - 2) == 0)
        row = &rows[r];
    if (row == NULL) {
      snprintf(error, errorSize, "unknown option %s: dynamiccl-rank --help lists all", argument);
      return -1;
    }
    if (strcmp(row->name, "help") == 0) {
      options_usage(stdout);
      exit(0);
    }
    const char *value = equals == NULL ? "" : equals + 1;
    int optional = row->kind == FLAG || row->metavar == NULL || row->metavar[0] == '[';
    if (equals == NULL && !optional) {
      if (i + 1 == argc) {
        snprintf(error, errorSize, "option --%s: want --%s %s", row->name, row->name, row->metavar);
        return -1;
      }
      value = argv[++i];
    }
    const char *wrong = row->kind == FLAG && equals != NULL ? "takes no value" : apply(o, row, value);
    if (wrong != NULL) {
      snprintf(error, errorSize, "option --%s %s: %s", row->name, value, wrong);
      return -1;
    }
  }
  o->model.seed = o->seed;
  const char *wrong = check(o);
  if (wrong != NULL) snprintf(error, errorSize, "%s", wrong);
  return wrong == NULL ? 0 : -1;
}
