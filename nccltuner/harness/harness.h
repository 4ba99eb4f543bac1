/* SPDX-License-Identifier: Apache-2.0
 *
 * The rank harness: stands in for NCCL in a rank process, with time taken from recorded tables. Options, the plan of a
 * run (phases and workload) and what one rank carries.
 */
#ifndef HARNESS_H
#define HARNESS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "table.h"
#include "timeline.h"
#include "tuning.h"

/* Exit codes, also in --help. */
enum { EXIT_USAGE = 2, EXIT_PEER_DIED = 3, EXIT_PLUGIN = 4, EXIT_LEFT = 5 };

#define MAX_PHASES 64
#define MAX_ITEMS 256
#define MAX_HARNESS_RANKS 64
#define MAX_COMMS 1024

struct options {
  int ncclVersion; /* NCCL_VERSION code: 22809 */
  int rank, threads, spawn;
  int nRanks, nNodes; /* 0: as in the first table */
  int comms;
  const char *job;
  uint64_t seed;

  int numPhases;
  struct { const char *path; uint64_t calls; } phases[MAX_PHASES];
  const char *tablePath; /* --table */
  uint64_t calls;        /* --calls */
  const char *workload; /* NULL: items come by plan_add_item alone */
  uint64_t maxBytes;
  int groupSize;
  double groupShare;

  struct timeline_model model;

  const char *syncPath;
  uint64_t window;
  double rate;
  double stallShare, stallUs;
  int lateRank;
  uint64_t lateCalls;
  int leaveRank;
  uint64_t leaveCall;
  uint64_t churn;
  int churnCalls;

  int maxChannels;
  int ll128Net;
  double regBuff;
  int maxTunerAbi, maxProfilerAbi;
  int proxyLag;

  const char *logPath, *summaryPath;
  int summary, measure, requirePlugin, selftest;
};

/* Reads argv; on --help prints and exits 0. -1 with a message on what is wrong and what to do. */
int options_parse(struct options *options, int argc, char **argv, char *error, size_t errorSize);
void options_usage(FILE *out);

/* One collective and size that the program calls. */
struct item {
  int func;
  double weight;
  uint64_t bytes;     /* as getCollInfo sees them */
  size_t userCount;   /* count and ... */
  const char *userDatatype; /* ... datatype of the API call */
  size_t count;       /* of the task: bytes for AllGather and Broadcast, enqueue.cc:2474 */
  int elementSize;
  const char *datatype;
  const struct table_cell *cell;
  double defaultNs, bestNs; /* in this phase */
};

struct phase {
  struct table table;
  uint64_t firstCall, endCall;
  int numItems;
  struct item items[MAX_ITEMS];
  double totalWeight;
};

/* What all ranks of a run share by computing it alike. */
struct plan {
  const struct options *options;
  struct tuning tuning;
  int nRanks, nNodes;
  int noWindows; /* NCCL may run device kernels on buffers that nobody registered */
  uint64_t calls;
  int numPhases;
  struct phase phases[MAX_PHASES];
};
int plan_build(struct plan *plan, const struct options *options, char *error, size_t errorSize);
void plan_free(struct plan *plan);
/* The collective of a call; only of (seed, communicator, call of the communicator). */
const struct item *plan_item(const struct plan *plan, const struct phase *phase, int comm, uint64_t seq);
/* Adds an item of a workload; NULL, or what is wrong. */
const char *plan_add_item(struct plan *plan, struct phase *phase, int func, uint64_t bytes, double weight);

/* Where ranks of one run see how far the others are (sync.c). */
struct sync;
/* path NULL: memory that threads and children share. Only ranks first to first + count - 1 are ever waited for. */
struct sync *sync_open(const char *path, int nRanks, int first, int count, char *error, size_t errorSize);
/* Takes a rank's place; -1 when an earlier run has used the file. */
int sync_enter(struct sync *sync, int rank, char *error, size_t errorSize);
void sync_progress(struct sync *sync, int rank, uint64_t calls);
void sync_leave(struct sync *sync, int rank, int result);
uint32_t sync_process(const struct sync *sync, int rank); /* that it has entered by, also when it has left */ /* exit code */
/* Waits until this rank is less than window calls ahead of every other one; 0, or -1 with the name of a dead peer. */
int sync_wait(struct sync *sync, int rank, uint64_t call, uint64_t window, char *error, size_t errorSize);
/* Waits until every rank has passed this barrier, as NCCL's bootstrap does; except: a rank not waited for, -1 none. */
int sync_barrier(struct sync *sync, int rank, uint64_t number, int except, char *error, size_t errorSize);

struct bucket_sum { uint64_t calls, chosen; double costNs, defaultNs, bestNs; };

/* Latency of getCollInfo in ns: one bin a nanosecond. */
#define LATENCY_BINS 16384
struct latency { uint64_t count, bins[LATENCY_BINS + 1]; double max; };

struct proxy;
struct log_writer;
struct comm;

struct rank {
  const struct plan *plan;
  struct sync *sync;
  int rank;
  struct comm *comms; /* plan->options->comms of them */
  struct proxy *proxy;
  struct proxy *kernels; /* thread of the KernelCh events where it is not the proxy's (2.32), else NULL */
  struct log_writer *log;
  struct timeline timeline;
  const char *commName; /* of communicators that are made from here on; NULL: none */
  uint64_t numComms; /* made so far, for communicator ids */
  struct bucket_sum *sums; /* [phase][item] */
  struct latency *latency; /* NULL: not measured */
  uint64_t collInfoCalls, collectives;
  char tuner[64], profiler[64]; /* names, kept because the libraries are closed before the summary */
  int tunerAbi, profilerAbi;
  double seconds;
  int result; /* exit code */
  char error[512];
};

/* run.c: a whole life of one rank; sets result and error. */
void rank_run(struct rank *rank);
/* summary.c: 0, or -1 when it could not be written. */
int summary_write(const struct rank *rank);
/* A clock without system call, in ns; fine enough for tens of ns. */
double tick_ns(void);
/* selftest.c: 0 when all passed. */
int selftest_run(FILE *out);
/* clock.c: real time, whatever clock_gettime says to a plugin. */
uint64_t host_now_ns(void);
/* The plugin's clock_gettime gives virtual time while one of its event functions runs in this thread, so that what it
 * times on the host agrees with what the tables say. 0: real time. */
void clock_virtual(uint64_t nowNs);

#endif
