/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a program's first thread is, asked by a timer's signal while it runs: preloaded into one, by live.sh's step host-where. It begins
 * $WHERE_AFTER_S after the start and goes on for $WHERE_S. Then a thread writes what was found, for processes of `dynamiccld bench` are killed
 * at their end: $WHERE_OUT-PID.tsv, a line for each time that it was asked, library and address in it, as addr2line and objdump have them.
 *
 * It takes itself what it costs: a signal every 100 us is 3 to 7% of a call of 10 us (docs/results/host.md), spread over all libraries
 * alike. A thread that waits in the kernel is found behind its system call, in libc.
 */
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define MAX_SAMPLES (1u << 21) /* 200 seconds, a time each 100 us */
#define EVERY_NS 100000
#define MAX_PARTS 4096 /* of programs and libraries, that can be run */

static uintptr_t *samples;
static volatile unsigned numSamples;
static timer_t timer;

static struct part { uintptr_t begin, end, base; char name[128]; } parts[MAX_PARTS];
static int numParts;

static void tick(int signal, siginfo_t *info, void *context) {
  (void)signal;
  (void)info;
  unsigned n = numSamples;
  if (n == MAX_SAMPLES) return;
#if defined(__x86_64__)
  samples[n] = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
  samples[n] = (uintptr_t)((ucontext_t *)context)->uc_mcontext.pc;
#else
#error "where an interrupted thread's address is, is not known of this processor"
#endif
  numSamples = n + 1;
}

static int add_parts(struct dl_phdr_info *info, size_t size, void *nothing) {
  (void)size;
  (void)nothing;
  const char *file = strrchr(info->dlpi_name, '/');
  for (int i = 0; i < info->dlpi_phnum && numParts < MAX_PARTS; i++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || (segment->p_flags & PF_X) == 0) continue;
    struct part *part = &parts[numParts++];
    part->base = info->dlpi_addr;
    part->begin = info->dlpi_addr + segment->p_vaddr;
    part->end = part->begin + segment->p_memsz;
    snprintf(part->name, sizeof part->name, "%s", file != NULL ? file + 1 : info->dlpi_name[0] != '\0' ? info->dlpi_name : "program");
  }
  return 0;
}

static void set_timer(long everyNs) {
  struct timespec every = {.tv_nsec = everyNs};
  timer_settime(timer, 0, &(struct itimerspec){every, every}, NULL);
}

static void sleep_s(const char *seconds) {
  struct timespec left = {.tv_sec = atol(seconds)};
  while (nanosleep(&left, &left) != 0) continue;
}

static void *sample(void *nothing) {
  char path[4096], unfinished[4100];
  (void)nothing;
  sleep_s(getenv("WHERE_AFTER_S"));
  set_timer(EVERY_NS);
  sleep_s(getenv("WHERE_S"));
  set_timer(0);
  unsigned n = numSamples;
  snprintf(path, sizeof path, "%s-%d.tsv", getenv("WHERE_OUT"), (int)getpid());
  snprintf(unfinished, sizeof unfinished, "%s.new", path);
  FILE *out = fopen(unfinished, "w");
  if (out == NULL) {
    perror(unfinished);
    return NULL;
  }
  dl_iterate_phdr(add_parts, NULL); /* now: what was loaded at the start is less */
  for (unsigned i = 0; i < n; i++) {
    const struct part *part = NULL;
    for (int p = 0; p < numParts && part == NULL; p++)
      if (samples[i] >= parts[p].begin && samples[i] < parts[p].end) part = &parts[p];
    fprintf(out, "%s\t%#lx\n", part != NULL ? part->name : "?", (unsigned long)(part != NULL ? samples[i] - part->base : samples[i]));
  }
  if (fclose(out) != 0 || rename(unfinished, path) != 0) perror(path);
  return NULL;
}

__attribute__((constructor)) static void begin(void) {
  pthread_t thread;
  sigset_t all, before;
  if (getenv("WHERE_OUT") == NULL || getenv("WHERE_AFTER_S") == NULL || getenv("WHERE_S") == NULL) return;
  samples = calloc(MAX_SAMPLES, sizeof *samples);
  if (samples == NULL) return;
  memset(samples, 0, MAX_SAMPLES * sizeof *samples); /* touched: a page fault each 512 samples is none of the program's */
  struct sigaction action = {.sa_sigaction = tick, .sa_flags = SA_SIGINFO | SA_RESTART};
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 5};
  event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
  if (sigaction(event.sigev_signo, &action, NULL) != 0 || timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) {
    perror("where.so: a timer");
    return;
  }
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  if (pthread_create(&thread, NULL, sample, NULL) != 0) fprintf(stderr, "where.so: no thread\n");
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}
