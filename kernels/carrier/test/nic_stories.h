/* SPDX-License-Identifier: Apache-2.0
 *
 * Single cases of the network card in software: what it refuses, peers that are gone or dead, faults on purpose, and that its
 * kernel ends; when it does: nic_successors.h.
 */
#ifndef CARRIER_TEST_NIC_STORIES_H
#define CARRIER_TEST_NIC_STORIES_H

#include <functional>

#include "nic_world.h"

constexpr size_t kStoryBytes = 256 << 10;

/* To rank 1, of rank 0's memory, with its signal 0. */
static posting putOf(World &w, uint64_t bytes, bool signals, int context = 0, int to = 1) {
  Card &c = w.card(context, 0);
  posting p = {};
  p.queue = &c.queue(to), p.side = &c.queue(to, NIC_SIDE);
  p.what = POST_DATA, p.bytes = bytes, p.most = 1 << 30;
  p.to = c.at(kReceiveKey, to, 0), p.from = c.at(kSendKey, 0, 0);
  p.signals = signals, p.signal = c.at(kSignalKey, to, 0), p.add = 1;
  p.counter = c.at(kCounterKey, 0, 0), p.sinkKey = c.context.sinkKey;
  return p;
}

/* GDAKI_DONE, ..., of a queue in its first lap. */
static int whatOf(const poster_queue &q, uint64_t index) { return __atomic_load_n(q.done.at + index * NIC_COMPLETION_BYTES + NIC_COMPLETION_BYTES - 1, __ATOMIC_ACQUIRE) >> 4; }

static void checkFailure(const Card &c, uint32_t why, const char *what) {
  const uint32_t failed = loadCount(&c.report.failed), peer = loadCount(&c.report.peer);
  CHECK(failed == why && peer == 1, "%s: failure %u of peer %u", what, failed, peer);
}

static void awaitEnd(const Card &c) {
  while (c.runs) usleep(100);
}

/* Nothing was written but what was: so many bytes at rank 1's beginning. */
static void checkMemory(World &w, size_t written) {
  for (int r = 0; r < w.nRanks; r++) {
    const size_t from = r == 1 ? written : 0;
    CHECK(isUntouched(w.receive[r].get() + from, w.bytes - from), "a byte of rank %d behind its first %zu", r, from);
  }
}

/* A queue that got a request like this one does it badly, and all behind it; other queues go on. */
static void refused(const char *what, uint32_t why, const std::function<void(World &w, poster_queue *q, uint64_t at)> &write, int side = NIC_MAIN) {
  World w(2, 1, kStoryBytes);
  Card &c = w.card(0, 0);
  poster_queue &q = c.queue(1, side);
  const uint64_t at = poster_reserve(&q, 1);
  write(w, &q, at);
  poster_ready(&q, at, 1);
  poster_ring(&q, at + 1);
  posting good = putOf(w, 100, true);
  if (side == NIC_SIDE) good.counts = true;
  const uint64_t behind = post(&good);
  CHECK(!poster_await(&q.done, at) || whatOf(q, at) == GDAKI_DONE_BADLY, "%s was done", what);
  for (int s = 0; s < NIC_SIDES; s++) poster_flush(&c.queue(1, s));
  for (uint64_t i = side == NIC_MAIN ? behind : 1; i < 3; i++) CHECK(whatOf(q, i) == GDAKI_DONE_BADLY, "%s: request %lu behind it was done", what, i);
  CHECK(whatOf(q, at) == GDAKI_DONE_BADLY, "%s", what);
  posting self = putOf(w, 0, true, 0, 0);
  post(&self);
  CHECK(poster_flush(&c.queue(0)), "%s: the queue to another peer", what);
  while (poster_load(&c.signals[0]) != 1 || loadCount(&c.report.failed) == NIC_FINE) usleep(20);
  checkFailure(c, why, what);
  /* A kernel that comes later knows of it. */
  awaitEnd(c);
  post(&good);
  while (poster_load(c.queue(1).done.consumed) < behind + 4) usleep(20);
  CHECK(side == NIC_SIDE || poster_load(&w.card(0, 1).signals[0]) == 0, "%s: a queue that failed signals again", what);
  CHECK(poster_load(&c.counters[0]) == 0, "%s: a queue that failed counts again", what);
  checkMemory(w, side == NIC_SIDE ? 100 : 0);
}

static void refusals() {
  const auto write = [](place to, place from, uint32_t bytes) { return [=](World &, poster_queue *q, uint64_t at) { poster_data(q, at, to, from, bytes); }; };
  const auto key = [](uint32_t number) { return swapBytes(number); };
  const place to = {0, key(kReceiveKey)}, from = {0, key(kSendKey)};
  const uint64_t end = kStoryBytes;
  refused("a byte behind the target", NIC_BAD_KEY, write({end - 63, to.key}, from, 64));
  refused("a target that begins behind", NIC_BAD_KEY, write({end + 64, to.key}, from, 1));
  refused("a target that wraps around", NIC_BAD_KEY, write({UINT64_MAX - 8, to.key}, from, 64));
  refused("a byte behind the source", NIC_BAD_KEY, write(to, {end - 63, from.key}, 64));
  refused("no key", NIC_BAD_KEY, write({0, 0}, from, 64));
  refused("a key that is too large", NIC_BAD_KEY, write({0, key(kKeys)}, from, 64));
  refused("a key of nothing", NIC_BAD_KEY, write(to, {0, key(kOtherKey)}, 64));
  refused("a counter of another rank", NIC_BAD_KEY, write({0, key(kCounterKey)}, from, 8));
  refused("a value that is too long", NIC_BAD_KEY, [=](World &, poster_queue *q, uint64_t at) { poster_value(q, at, to, 7, 29); });
  refused("a value behind the target", NIC_BAD_KEY, [=](World &, poster_queue *q, uint64_t at) { poster_value(q, at, {end - 7, to.key}, 7, 8); });
  refused("a signal behind the others", NIC_BAD_KEY, [=](World &, poster_queue *q, uint64_t at) { poster_add(q, at, {kSignals * 8, key(kSignalKey)}, 1, 0); });
  refused("a signal askew", NIC_BAD_REQUEST, [=](World &, poster_queue *q, uint64_t at) { poster_add(q, at, {4, key(kSignalKey)}, 1, 0); });
  const auto other = [](uint32_t opcode) {
    return [=](World &, poster_queue *q, uint64_t at) {
      uint32_t words[GDAKI_WORDS];
      poster_head(q, words, at, opcode, 3);
      poster_write(q, at, words, 3);
    };
  };
  refused("a write with an immediate", NIC_BAD_REQUEST, other(0x09));
  refused("an addition with a mask", NIC_BAD_REQUEST, other(0x15));
  const auto get = [](place remote, place local, uint32_t bytes) { return [=](World &, poster_queue *q, uint64_t at) { poster_get(q, at, local, remote, bytes); }; };
  refused("a get from behind the other's memory", NIC_BAD_KEY, get({end - 63, from.key}, to, 64));
  refused("a get to behind one's own", NIC_BAD_KEY, get(from, {end - 63, to.key}, 64));
  refused("a get to a counter", NIC_BAD_KEY, get(from, {kCounters * sizeof(uint64_t), key(kCounterKey)}, 8));
  refused("a get with no key", NIC_BAD_KEY, get({0, 0}, to, 64));
  refused("a get into a request", NIC_BAD_KEY, get(from, to, GDAKI_INLINE | 8));
  const auto wait = [](uint32_t completions) { return [=](World &, poster_queue *q, uint64_t at) { poster_wait(q, at, 0, completions); }; };
  refused("a wait in the main queue", NIC_BAD_REQUEST, wait(nicNumberOf(1, NIC_MAIN)));
  refused("a wait for another queue", NIC_BAD_REQUEST, wait(nicNumberOf(0, NIC_MAIN)), NIC_SIDE);
  refused("a write in the side queue", NIC_BAD_REQUEST, write(to, from, 8), NIC_SIDE);
  refused("a get in the side queue", NIC_BAD_REQUEST, get(from, to, 8), NIC_SIDE);
}

/* A put whose signal cannot be made, which is found while it is copied: the put is done, and the signal badly. */
static void refusedBehind(uint64_t bytes) {
  World w(2, 1, kStoryBytes);
  Card &c = w.card(0, 0);
  posting p = putOf(w, bytes, true);
  p.signal = c.at(kSignalKey, 1, kSignals * sizeof(uint64_t));
  post(&p);
  CHECK(!poster_flush(&c.queue(1)) || whatOf(c.queue(1), 1) == GDAKI_DONE_BADLY, "a signal behind a put of %lu bytes and behind the others was done", bytes);
  CHECK(whatOf(c.queue(1), 0) == GDAKI_DONE, "a put of %lu bytes was not done since its signal cannot be made", bytes);
  while (loadCount(&c.report.failed) == NIC_FINE) usleep(20);
  checkFailure(c, NIC_BAD_KEY, "a signal that cannot be made behind a put");
  CHECK(memcmp(w.receive[1].get(), w.send[0].get(), bytes) == 0, "data of a put whose signal cannot be made");
  checkMemory(w, bytes);
}

/* Large puts, one behind the other and partly to the same places, some of them with a signal, so that blocks are asked for some and
 * begin unasked with others; small ones in between; and kernels that end. What came last lies on top. */
static void overlapping() {
  World w(2, 1, kStoryBytes);
  Card &c = w.card(0, 0);
  std::vector<unsigned char> wanted(w.receive[1].get(), w.receive[1].get() + kStoryBytes);
  uint64_t random = 1, signals = 0;
  for (size_t i = 0; i < kStoryBytes; i++) w.send[0][i] = (unsigned char)next(&random);
  for (int i = 0; i < 240; i++) {
    posting p = putOf(w, i % 7 == 3 ? 100 : 60000 + next(&random) % 80000, i % 3 != 1);
    p.to.offset = next(&random) % 50000, p.from.offset = next(&random) % 100000;
    post(&p);
    memcpy(wanted.data() + p.to.offset, w.send[0].get() + p.from.offset, p.bytes);
    if (!p.signals) continue;
    for (signals++; poster_load(&w.card(0, 1).signals[0]) < signals;) sched_yield();
    CHECK(memcmp(w.receive[1].get(), wanted.data(), kStoryBytes) == 0, "put %d and those before: what came before lies on top, or is missing", i);
    for (size_t k = (size_t)i % 64; k < kStoryBytes; k += 64) w.send[0][k]++; /* what others read of it is theirs to order */
    if (i % 30 == 29) c.tell(NIC_STOP, 1), awaitEnd(c), c.tell(NIC_STOP, 0); /* the next one has other blocks */
  }
}

/* What was put is got back behind it, by blocks that were asked and by those that began unasked, since a large put with its signal
 * came before; with what a NIC needs behind gets, and without. */
static void gets(bool dumps) {
  World w(2, 1, kStoryBytes);
  Card &c = w.card(0, 0);
  poster_queue &q = c.queue(1);
  q.dumps = dumps;
  unsigned char *const got = w.store[0].get() + kStoryBytes;
  uint64_t random = 3, signals = 0;
  for (uint64_t bytes : {1, 8, 100, 4096, 5000, 33000, 70000, 150000})
    for (int large = 0; large < 3; large++) {
      for (size_t i = 0; i < kStoryBytes; i++) w.send[0][i] = (unsigned char)next(&random);
      posting put = putOf(w, bytes, false), before = putOf(w, 120000, true), get = put;
      put.to = c.at(kStoreKey, 1, next(&random) % 5000), put.from.offset = next(&random) % 5000;
      get.what = POST_GET, get.from = put.to, get.to = c.at(kStoreKey, 0, kStoryBytes + 16 + next(&random) % 5000);
      post(&put);
      if (large > 0) post(&before), signals++; /* 2: which is over, so that others are told */
      while (large == 2 && poster_load(&w.card(0, 1).signals[0]) < signals) usleep(20);
      post(&get);
      CHECK(poster_flush(&q), "a get of %lu bytes", bytes);
      const size_t at = get.to.offset - kStoryBytes;
      CHECK(memcmp(got + at, w.send[0].get() + put.from.offset, bytes) == 0, "a get of %lu bytes is done and they are not here, %d", bytes, large);
      memset(got + at, 0xa5, bytes);
      for (size_t i = 0; i < kStoryBytes; i++) CHECK(got[i] == 0xa5, "a get of %lu bytes wrote beside them", bytes);
    }
  CHECK(c.report.failed == NIC_FINE && poster_load(q.got) > 0 && dumps == (poster_load(q.seen) > 0), "gets that were counted, and flushes behind them");
}

/* A queue that is one thread's: what is ready says nothing before it is rung for. */
static void alone() {
  World w(2, 1, kStoryBytes);
  Card &c = w.card(0, 0);
  c.queue(1).alone = true;
  for (uint64_t i = 1; i <= 2000; i++) {
    posting p = putOf(w, 1 + i % 700, true);
    p.to.offset = i % 64, p.from.offset = i % 4096;
    memset(w.send[0].get() + p.from.offset, (int)i, p.bytes);
    const uint64_t from = nicNowNs();
    post(&p);
    while (poster_load(&w.card(0, 1).signals[0]) < i)
      CHECK(loadCount(&c.report.failed) == NIC_FINE && nicNowNs() - from < 10000000000u, "put %lu of a thread's own queue was taken before it was rung for", i);
    for (size_t k = 0; k < p.bytes; k++) CHECK(w.receive[1][p.to.offset + k] == (unsigned char)i, "put %lu of a thread's own queue: byte %zu", i, k);
  }
}

/* What was on its way to a peer ends in errors, flushes and counters come, and nothing is written there any more. */
static void goneWhile(int millis, uint64_t bytes, uint64_t puts) {
  World w(3, 1, kStoryBytes);
  Card &c = w.card(0, 0);
  posting lost = putOf(w, bytes, true), kept = putOf(w, bytes, true, 0, 2);
  lost.counts = true, kept.counts = true, kept.counter = c.at(kCounterKey, 0, 8);
  std::thread poster([&] { for (uint64_t i = 0; i < puts; i++) post(&lost), post(&kept); });
  usleep(millis * 1000);
  c.tell(NIC_GONE, 1 << 1);
  poster.join();
  poster_flush(&c.queue(1));
  CHECK(poster_flush(&c.queue(2)), "a queue to another peer");
  while (poster_load(&c.counters[0]) < puts || poster_load(&c.counters[1]) < puts) usleep(20);
  while (poster_load(&w.card(0, 2).signals[0]) < puts) usleep(20);
  post(&lost);
  poster_flush(&c.queue(1));
  while (loadCount(&c.report.failed) == NIC_FINE) usleep(20);
  checkFailure(c, NIC_PEER_GONE, "a peer that is gone");
  const uint64_t came = poster_load(&w.card(0, 1).signals[0]);
  CHECK(came < puts, "all came though the peer is gone");
  memset(w.receive[1].get(), 0xa5, bytes);
  post(&lost);
  poster_flush(&c.queue(1));
  CHECK(poster_load(&w.card(0, 1).signals[0]) == came, "signals come to a peer that is gone");
  memset(w.receive[2].get(), 0xa5, bytes);
  checkMemory(w, 0);
}

/* Nothing is done for a peer that plays dead, not even badly; nor does it keep the kernel. All is done when it lives again. What
 * was late already when the peer died is no other case. */
static void dead(bool lateBefore) {
  World w(3, 1, kStoryBytes);
  Card &c = w.card(0, 0);
  posting late = putOf(w, 5000, true), other = putOf(w, 100, true, 0, 2);
  late.counts = true;
  if (lateBefore) {
    c.tell(NIC_LATENCY_NS, 4000000000u);
    post(&late);
    usleep(20000);
  }
  c.tell(NIC_DEAD, 1 << 1);
  c.tell(NIC_LATENCY_NS, 0);
  for (int i = lateBefore; i < 10; i++) post(&late);
  for (int i = 0; i < 10; i++) post(&other);
  CHECK(poster_flush(&c.queue(2)), "a queue to another peer");
  usleep(20000);
  CHECK(whatOf(c.queue(1), 0) == GDAKI_NOT_YET && poster_load(c.queue(1).done.consumed) == 0, "something was done");
  awaitEnd(c);
  const uint64_t launches = c.launches;
  usleep(20000);
  CHECK(c.launches == launches && poster_load(&c.counters[0]) == 0 && poster_load(&w.card(0, 1).signals[0]) == 0, "the kernel starts for a peer that plays dead");
  c.tell(NIC_DEAD, 0);
  CHECK(poster_flush(&c.queue(1)), "what was late");
  while (poster_load(&c.counters[0]) < 10 || poster_load(&w.card(0, 1).signals[0]) < 10) usleep(20);
  CHECK(memcmp(w.receive[1].get(), w.send[0].get(), 5000) == 0, "what was late");
}

static void latency() {
  World w(2, 1, kStoryBytes);
  Card &c = w.card(0, 0);
  posting p = putOf(w, 100, true);
  for (uint32_t us : {300, 20000}) {
    c.tell(NIC_LATENCY_NS, us * 1000);
    for (int i = 0; i < 4; i++) {
      const uint64_t from = nicNowNs(), signals = poster_load(&w.card(0, 1).signals[0]);
      post(&p);
      while (poster_load(&w.card(0, 1).signals[0]) == signals) usleep(20);
      const uint64_t took = nicNowNs() - from;
      CHECK(took >= us * 1000, "a put took %lu ns of %u us", took, us);
    }
  }
}

/* Of two contexts together. */
static void bandwidth() {
  World w(2, 2, kStoryBytes);
  const uint64_t from = nicNowNs();
  for (int c = 0; c < 2; c++) {
    w.card(c, 0).tell(NIC_BYTES_PER_US, 20);
    posting p = putOf(w, 50000, false, c);
    p.to.offset = (uint64_t)c * 100000;
    for (int i = 0; i < 10; i++) post(&p);
  }
  for (int c = 0; c < 2; c++) CHECK(poster_flush(&w.card(c, 0).queue(1)), "flush");
  const uint64_t took = nicNowNs() - from;
  CHECK(took >= 50000000, "a million bytes at 20 a microsecond took %lu ns", took);
}

/* A kernel ends when nobody posts, on each of its queues, and the next goes on where it was; a key may stand for other memory then. */
static void lives() {
  World w(2, 1, kStoryBytes);
  Card &c = w.card(0, 0);
  posting p = putOf(w, 70000, true);
  p.counts = true;
  for (uint64_t i = 1; i <= 5; i++) {
    post(&p);
    while (poster_load(&w.card(0, 1).signals[0]) < i || poster_load(&c.counters[0]) < i) usleep(20);
    CHECK(memcmp(w.receive[1].get(), w.send[0].get(), 70000) == 0, "data of put %lu", i);
    awaitEnd(c);
    CHECK(c.launches == i && c.report.consumed[1][NIC_MAIN] == 2 * i && c.report.consumed[1][NIC_SIDE] == 2 * i, "%lu launches", c.launches.load());
  }
  c.tell(NIC_IDLE_LOOKS, 1u << 30);
  for (uint64_t i = 0; i < 20; i++) {
    std::unique_ptr<unsigned char[]> other(new unsigned char[kStoryBytes]());
    c.setKey(kReceiveKey, 1, {(uint64_t)other.get(), kStoryBytes});
    post(&p);
    CHECK(poster_flush(&c.queue(1)), "flush");
    while (poster_load(&w.card(0, 1).signals[0]) < 6 + i) usleep(20);
    CHECK(memcmp(other.get(), w.send[0].get(), 70000) == 0 && other[70000] == 0, "memory that a key came to stand for");
    c.setKey(kReceiveKey, 1, {0, 0});
  }
  CHECK(c.runs && c.launches == 6, "it was to stay");
}

#include "nic_successors.h"

static void playStories() {
  if (layout == GDAKI_200) alone();
  successors();
  reserve();
  overlapping();
  for (bool dumps : {false, true})
    if (layout == GDAKI_200) gets(dumps);
  lives();
  refusals();
  for (uint64_t bytes : {100, 20000, 150000}) refusedBehind(bytes);
  for (int ms : {0, 1, 3, 10}) goneWhile(ms, 5000, 2000), goneWhile(ms, 100000, 2000);
  for (bool lateBefore : {false, true}) dead(lateBefore);
  latency();
  bandwidth();
}

#endif
