/* SPDX-License-Identifier: Apache-2.0
 *
 * For test_movers.c: messages that are alone on their way are moved by who asks, those beside each other by threads.
 */
static struct told {
  _Atomic int waits, parts; /* calls that find nothing; and then the message comes in so many */
  _Atomic uint64_t others;  /* calls of threads of ours */
  size_t left;
  uint8_t bytes[MOST];
} told[STREAMS];
static _Atomic long slowNs; /* of their calls */

static dyn_word as_told(dyn_word fd, dyn_word data, dyn_word bytes, dyn_word flags, dyn_word e, dyn_word f) {
  struct told *s = &told[fd];
  (void)data, (void)flags, (void)e, (void)f;
  if (!asks) {
    atomic_fetch_add(&s->others, 1);
    if (atomic_load(&slowNs) > 0) nap(atomic_load(&slowNs));
  }
  if (atomic_load(&s->waits) > 0) {
    atomic_fetch_sub(&s->waits, 1);
    errno = EAGAIN;
    return -1;
  }
  return atomic_load(&s->parts) > 1 ? bytes / atomic_fetch_sub(&s->parts, 1) : bytes;
}

static void next_message(int fd, int waits, int parts) {
  atomic_store(&told[fd].waits, waits);
  atomic_store(&told[fd].parts, parts);
  told[fd].left = MOST;
}
static void message(int fd, int waits, int parts) {
  next_message(fd, waits, parts);
  dyn_move_nothing(fd); /* as when its size is sent, or was not there to be received */
}
/* One call; whether the message is whole. */
static bool ask(int fd) {
  struct told *s = &told[fd];
  if (s->left == 0) return true;
  dyn_word got = dyn_move(as_told, fd, s->bytes + (MOST - s->left), s->left, 0);
  CHECK(got > 0 || (got == -1 && errno == EAGAIN));
  if (got > 0) s->left -= (size_t)got;
  return s->left == 0;
}
static void whole_message(int fd, int waits, int parts) {
  message(fd, waits, parts);
  while (!ask(fd)) sched_yield();
}

/* There and back; one that comes long after its size; and one right behind another. */
static void messages_alone(int fd) {
  for (int i = 0; i < 50; i++) {
    whole_message(fd, i % 3, 1);
    message(fd, 2, 1);
    whole_message(fd + 1, 2, 1 + i % 3);
    while (!ask(fd)) sched_yield();
    next_message(fd, 0, 1 + i % 2);
    while (!ask(fd)) sched_yield();
  }
}
static void *alone_on(void *first) {
  int fd = *(int *)first;
  asks = true;
  for (int round = 0; round < 10; round++) {
    uint64_t before = atomic_load(&told[fd].others) + atomic_load(&told[fd + 1].others);
    messages_alone(fd);
    CHECK(round == 0 || atomic_load(&told[fd].others) + atomic_load(&told[fd + 1].others) == before);
  }
  return NULL;
}

/* One comes while another one is there in part. */
static void one_within_another(void) {
  message(0, 0, 2);
  while (told[0].left == MOST) ask(0);
  atomic_store(&told[0].waits, 1);
  ask(0);
  whole_message(1, 0, 1);
  atomic_store(&told[0].waits, 1);
  while (!ask(0)) sched_yield();
}
/* One that was not there when the other one began is there whole behind it. */
static void one_behind_another(void) {
  message(0, 1, 1);
  ask(0);
  whole_message(1, 0, 1);
  while (!ask(0)) sched_yield();
}
static void until_handed_over(void (*both)(void)) {
  uint64_t began = dyn_movers_clock_ns(), before;
  messages_alone(0);
  before = atomic_load(&told[0].others) + atomic_load(&told[1].others);
  messages_alone(0);
  CHECK(atomic_load(&told[0].others) + atomic_load(&told[1].others) == before);
  while (atomic_load(&told[0].others) + atomic_load(&told[1].others) == before) {
    both();
    CHECK(dyn_movers_clock_ns() - began < 5 * UINT64_C(1000000000));
  }
}

static void alone(void) {
  pthread_t threads[2];
  int first[2] = {4, 6};
  asks = true;
  until_handed_over(one_within_another);
  until_handed_over(one_behind_another);
  for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, alone_on, &first[i]) == 0);
  for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

/* Of two that threads move at a time each is whole at once, and they are handed over still. */
static void at_a_time(void) {
  uint64_t before = 0, now = 0, began = 0;
  asks = true;
  atomic_store(&slowNs, 100000);
  for (int i = 0; i < 200 || now == before; i++) { /* for longer where threads hardly get a CPU */
    if (i == 150) before = atomic_load(&told[0].others) + atomic_load(&told[1].others), began = dyn_movers_clock_ns();
    CHECK(i < 200 || dyn_movers_clock_ns() - began < 5 * UINT64_C(1000000000));
    message(0, 0, 1);
    message(1, 0, 1);
    for (bool zero = false, one = false; !zero || !one; sched_yield()) {
      if (!zero) zero = ask(0);
      if (!one) one = ask(1);
    }
    now = atomic_load(&told[0].others) + atomic_load(&told[1].others);
  }
}
