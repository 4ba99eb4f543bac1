/* SPDX-License-Identifier: Apache-2.0
 *
 * Random puts, values, signals and counters between all ranks, on several contexts, from several threads a queue, of any size and
 * alignment, while kernels end, or are ended, and are started again. When a signal is seen, all data of what was posted before it
 * in the queue is compared; who posts changes a source as soon as a counter or a flush says that it may. With the layout that has
 * gets posters also get back what they have just put.
 */
#ifndef CARRIER_TEST_NIC_TRAFFIC_H
#define CARRIER_TEST_NIC_TRAFFIC_H

#include "nic_world.h"

constexpr int kPosters = 2, kRing = 4096, kAhead = 64, kGuard = 16;
constexpr size_t kMostBytes = 200 << 10;
/* Some laps before 32 bits end, and so before 16 do. */
constexpr uint64_t kBegin = (1ull << 32) - 4 * NIC_DEPTH;

/* Places of a poster in its target's memory, and as many in its own. Large ones come one behind the other, too. */
constexpr struct { size_t bytes, places; } kClasses[] = {{2048, 16}, {66 << 10, 2}, {kMostBytes + 2048, 2}};
constexpr size_t areaBytes() {
  size_t sum = 0;
  for (auto c : kClasses) sum += c.bytes * c.places;
  return sum;
}

struct Op {
  int poster, sizeClass; /* -1: nobody's; no bytes that the receiver compares */
  int what;
  bool signals, counts, shared, last; /* shared: to the signal that all ranks add to */
  uint64_t bytes, sourceAt, targetAt, placeAt, pattern, value, add;
};

struct Entry { /* what was posted, where its first request is */
  std::atomic<uint64_t> first{UINT64_MAX};
  uint32_t count;
  Op op;
};

/* From a rank to a rank on a context. */
struct Flow {
  int context, source, target;
  std::unique_ptr<Entry[]> log{new Entry[kRing]};
  std::atomic<uint64_t> checked[kPosters] = {}, freed[kPosters][3] = {}; /* operations; places that are free again */
  std::atomic<uint64_t> counted[kPosters] = {}, shared{0};
};

struct Traffic {
  World &w;
  uint64_t each, seed;
  std::vector<std::unique_ptr<Flow>> flows;
  std::atomic<uint64_t> operations{0}, bytes{0}, changed{0};
  Flow &flow(int context, int source, int target) { return *flows[(context * w.nRanks + source) * w.nRanks + target]; }
};

static int orderSignal(const Flow &f) { return f.source; }
constexpr int kSharedSignal = kMaxRanks;
static int counterOf(int target, int poster) { return target * kPosters + poster; }

/* Of rank `owner`'s memory: where what goes to or comes from `other` lies. */
static size_t areaAt(const Traffic &t, int context, int other, int poster) { return ((size_t)(context * t.w.nRanks + other) * kPosters + poster) * areaBytes(); }

static void fillPattern(unsigned char *at, uint64_t bytes, uint64_t pattern) {
  for (uint64_t i = 0; i < bytes; i += 8) {
    const uint64_t word = pattern + i * 0x9E3779B97F4A7C15u;
    memcpy(at + i, &word, bytes - i < 8 ? bytes - i : 8);
  }
}

static bool hasPattern(const unsigned char *at, uint64_t bytes, uint64_t pattern) {
  for (uint64_t i = 0; i < bytes; i += 8) {
    const uint64_t word = pattern + i * 0x9E3779B97F4A7C15u;
    if (memcmp(at + i, &word, bytes - i < 8 ? bytes - i : 8) != 0) return false;
  }
  return true;
}

/* ---- posters ---- */

struct Poster {
  Traffic &t;
  Flow &f;
  int number;
  Card &card;
  uint64_t random, done = 0, used[3] = {};
  bool heavy, unsignalled = false; /* heavy: sends large ones, a few */
  std::vector<Op> pending;         /* whose source is not to be changed yet */

  Poster(Traffic &traffic, Flow &flow, int n)
      : t(traffic), f(flow), number(n), card(traffic.w.card(flow.context, flow.source)),
        random(traffic.seed ^ (uint64_t)(((flow.context * kMaxRanks + flow.source) * kMaxRanks + flow.target) * kPosters + n) * 0xD1342543DE82EF95u),
        heavy((flow.context + flow.source + flow.target) % 4 == 0) {}

  uint64_t draw(uint64_t n) { return next(&random) % n; }
  unsigned char *source(const Op &op) { return t.w.send[f.source].get() + op.sourceAt; }

  void change(const Op &op) {
    if (op.what == POST_DATA && op.bytes > 0) memset(source(op), (int)draw(256), op.bytes), t.changed++;
  }

  void flush() {
    posting p = {};
    p.reserved = note, p.owner = this;
    current = {};
    current.poster = current.sizeClass = -1;
    CHECK(poster_flush_as(&card.queue(f.target), &p), "a completion says that something failed");
    for (const Op &op : pending) change(op);
    pending.clear();
  }

  static void note(const posting *p, uint64_t first, uint32_t count) {
    const Poster &self = *(Poster *)p->owner;
    Entry &e = self.f.log[first % kRing];
    e.count = count, e.op = self.current;
    e.first.store(first, std::memory_order_release);
  }
  Op current;

  void postAs(posting &p, const Op &op) {
    p.queue = &card.queue(f.target), p.side = &card.queue(f.target, NIC_SIDE);
    p.bytes = op.bytes, p.most = 4096 << draw(8);
    p.sinkKey = card.context.sinkKey, p.reserved = note, p.owner = this;
    current = op;
    post(&p);
    done++, t.operations++;
    t.bytes += op.bytes;
  }

  /* What was put is got back behind it, and compared when a flush says that it is here. */
  void goThereAndBack() {
    constexpr size_t kOut = kMostBytes + 4096;
    static_assert(kOut + kMostBytes + 2048 < areaBytes());
    const size_t own = t.w.bytes + areaAt(t, f.context, f.target, number), other = areaAt(t, f.context, f.source, number);
    unsigned char *const store = t.w.store[f.source].get();
    Op op = {};
    op.poster = number, op.sizeClass = -1, op.pattern = next(&random);
    op.bytes = 1 + draw(draw(heavy ? 2 : 16) == 0 ? kMostBytes : draw(4) == 0 ? 8000 : 128);
    posting put = {}, get = {};
    put.what = POST_DATA, put.from = card.at(kStoreKey, f.source, own + kOut + draw(64)), put.to = card.at(kStoreKey, f.target, other + draw(64));
    get.what = POST_GET, get.from = put.to, get.to = card.at(kStoreKey, f.source, own + kGuard + draw(64));
    unsigned char *const got = store + get.to.offset;
    fillPattern(store + put.from.offset, op.bytes, op.pattern);
    postAs(put, op);
    postAs(get, op);
    flush();
    CHECK(hasPattern(got, op.bytes, op.pattern), "context %d, rank %d: %lu bytes from rank %d were got, and are not here", f.context, f.source, op.bytes, f.target);
    memset(got, 0xa5, op.bytes);
    CHECK(isUntouched(got - kGuard, op.bytes + 2 * kGuard), "context %d, rank %d: a get wrote beside its bytes", f.context, f.source);
    unsignalled = true;
  }

  void send(const Op &op) {
    posting p = {};
    p.what = op.what, p.value = op.value;
    p.to = card.at(kReceiveKey, f.target, op.targetAt), p.from = card.at(kSendKey, f.source, op.sourceAt);
    p.signals = op.signals, p.add = op.add;
    p.signal = card.at(kSignalKey, f.target, sizeof(uint64_t) * (op.shared ? kSharedSignal : orderSignal(f)));
    p.counts = op.counts, p.counter = card.at(kCounterKey, f.source, sizeof(uint64_t) * counterOf(f.target, number));
    if (op.what == POST_DATA) fillPattern(source(op), op.bytes, op.pattern);
    postAs(p, op);
    unsignalled = !op.signals || op.shared;
    if (op.shared && op.signals) f.shared += op.add;
    if (op.counts) f.counted[number]++;
    pending.push_back(op);
  }

  /* Until the receiver has checked so many of this poster's. */
  void await(const std::atomic<uint64_t> &is, uint64_t least) {
    if (is >= least) return;
    if (unsignalled) sendSignal();
    for (unsigned vain = 0; is < least;) poster_rest(&vain);
  }

  void sendSignal(bool last = false) {
    Op op = {};
    op.poster = number, op.sizeClass = -1, op.what = POST_NOTHING, op.signals = true, op.last = last, op.add = 1 + draw(1ull << 40);
    send(op);
  }

  Op drawOp() {
    Op op = {};
    const uint64_t kind = draw(16);
    op.poster = number, op.sizeClass = -1;
    op.signals = draw(3) == 0, op.counts = draw(4) == 0, op.shared = draw(8) == 0;
    op.add = draw(2) ? 1 : 1 + draw(1ull << 40); /* an increment, or an addition */
    op.pattern = next(&random);
    op.what = kind == 0 ? POST_NOTHING : kind < 4 ? POST_VALUE : POST_DATA;
    if (op.what == POST_NOTHING) op.signals = true;
    if (op.what == POST_VALUE) op.bytes = 1 << draw(4), op.value = op.pattern;
    if (op.what == POST_DATA && kind > 4)
      op.bytes = draw(heavy ? 2 : 256) == 0 ? (64 << 10) + draw(kMostBytes + 1 - (64 << 10)) : draw(32) == 0 ? draw(64 << 10) : draw(8) == 0 ? draw(2000) : 1 + draw(128);
    if (op.bytes > 0) op.sizeClass = op.bytes <= 2000 ? 0 : op.bytes <= 64 << 10 ? 1 : 2;
    return op;
  }

  void takePlace(Op &op) {
    const auto &c = kClasses[op.sizeClass];
    uint64_t place = used[op.sizeClass]++;
    size_t at = 0;
    for (int k = 0; k < op.sizeClass; k++) at += kClasses[k].bytes * kClasses[k].places;
    at += place % c.places * c.bytes;
    op.placeAt = areaAt(t, f.context, f.source, number) + at;
    for (size_t i = 0; i < pending.size(); i++)
      if (pending[i].sizeClass >= 0 && pending[i].placeAt == op.placeAt) flush();
    if (place >= c.places) await(f.freed[number][op.sizeClass], place - c.places + 1);
    const size_t room = c.bytes - 2 * kGuard - op.bytes;
    op.targetAt = op.placeAt + kGuard + (draw(4) ? draw(room + 1) : 0);
    op.sourceAt = areaAt(t, f.context, f.target, number) + at + kGuard + (draw(4) ? draw(room + 1) : 0);
  }

  void run() {
    while (done < (heavy ? t.each / 8 : t.each)) {
      Op op = drawOp();
      await(f.checked[number], done < kAhead ? 0 : done - kAhead + 1);
      if (layout == GDAKI_200 && draw(12) == 0) goThereAndBack();
      if (op.sizeClass >= 0) takePlace(op);
      send(op);
      if (op.counts && draw(2)) {
        for (unsigned vain = 0; poster_load(&card.counters[counterOf(f.target, number)]) < f.counted[number];) poster_rest(&vain);
        change(op);
        pending.pop_back();
      }
      if (pending.size() > draw(24)) flush();
    }
    sendSignal(true);
    flush();
  }
};

/* ---- receivers ---- */

static void checkOp(Traffic &t, const Flow &f, uint64_t first, const Op &op) {
  unsigned char *memory = t.w.receive[f.target].get();
  if (op.sizeClass < 0) return;
  const size_t room = kClasses[op.sizeClass].bytes, before = op.targetAt - op.placeAt;
  unsigned char *place = memory + op.placeAt, *at = memory + op.targetAt;
  CHECK(op.what == POST_VALUE ? memcmp(at, &op.value, op.bytes) == 0 : hasPattern(at, op.bytes, op.pattern),
        "context %d, request %lu of rank %d to rank %d, %lu bytes: a signal behind it is here and its data is not", f.context, first, f.source, f.target, op.bytes);
  memset(at, 0xa5, op.bytes);
  CHECK(op.sizeClass > 0 ? isUntouched(at - kGuard, kGuard) && isUntouched(at + op.bytes, kGuard) : isUntouched(place, before) && isUntouched(at + op.bytes, room - before - op.bytes),
        "context %d, request %lu of rank %d to rank %d: bytes beside it were written", f.context, first, f.source, f.target);
}

/* Of a flow. Sums of its order signal are those that its additions have in the queue's order. */
struct Receiver {
  Traffic &t;
  Flow &f;
  uint64_t at = kBegin, sum = 0;
  int left = kPosters;

  bool step() {
    const uint64_t seen = poster_load(&t.w.card(f.context, f.target).signals[orderSignal(f)]);
    const bool did = seen != sum;
    while (sum != seen) {
      const Entry &e = f.log[at % kRing];
      CHECK(e.first.load(std::memory_order_acquire) == at && sum < seen, "context %d: signals of rank %d to rank %d: %lx is no sum of theirs", f.context, f.source, f.target, seen);
      const Op op = e.op;
      checkOp(t, f, at, op);
      at += e.count;
      if (op.signals && !op.shared) sum += op.add;
      if (op.last) left--;
      if (op.sizeClass >= 0) f.freed[op.poster][op.sizeClass]++;
      if (op.poster >= 0) f.checked[op.poster]++;
    }
    return did;
  }
};

static void receiveAll(Traffic *t, int rank) {
  std::vector<Receiver> receivers;
  for (auto &f : t->flows)
    if (f->target == rank) receivers.push_back({*t, *f});
  for (unsigned left = 1, vain = 0; left > 0;) {
    bool did = false;
    left = 0;
    for (Receiver &r : receivers) did = r.step() || did, left += (unsigned)r.left;
    vain = did ? 0 : vain + 1;
    if (!did) usleep(vain < 16 ? 20 : 100);
  }
}

/* Kernels end at any time, by what they are told or because nobody posts. */
static void disturb(Traffic *t, std::atomic<bool> *over) {
  uint64_t random = t->seed * 77;
  while (!*over) {
    usleep(500 + next(&random) % 4000);
    Card &c = *t->w.cards[next(&random) % t->w.cards.size()];
    const bool whole = next(&random) % 4 != 0; /* or what it was told may be over before it looks */
    c.tell(NIC_IDLE_LOOKS, 20 << next(&random) % 8);
    c.tell(NIC_STOP, 1);
    while (whole && c.runs) usleep(50);
    c.tell(NIC_STOP, 0);
  }
}

static void playTraffic(int ranks, int contexts, uint64_t operations, uint64_t seed) {
  World w(ranks, contexts, (size_t)contexts * ranks * kPosters * areaBytes(), kBegin);
  Traffic t = {w, operations / (contexts * ranks * ranks * kPosters) + 1, seed, {}};
  std::vector<std::thread> threads;
  std::atomic<bool> over{false};
  for (int c = 0; c < contexts; c++)
    for (int s = 0; s < ranks; s++)
      for (int to = 0; to < ranks; to++) t.flows.emplace_back(new Flow{c, s, to});
  for (int r = 0; r < ranks; r++) threads.emplace_back(receiveAll, &t, r);
  for (auto &f : t.flows)
    for (int p = 0; p < kPosters; p++) threads.emplace_back([&t, &f, p] { Poster(t, *f, p).run(); });
  std::thread disturber(disturb, &t, &over);
  for (auto &thread : threads) thread.join();
  over = true;
  disturber.join();
  uint64_t launches = 0, requests = 0;
  for (auto &f : t.flows) {
    Card &c = w.card(f->context, f->source);
    for (int p = 0; p < kPosters; p++) {
      while (poster_load(&c.counters[counterOf(f->target, p)]) < f->counted[p]) usleep(50);
      usleep(100);
      CHECK(poster_load(&c.counters[counterOf(f->target, p)]) == f->counted[p], "a counter of rank %d is too high", f->source);
    }
    requests += poster_load(c.queue(f->target).doorbell) - kBegin;
  }
  for (int context = 0; context < contexts; context++)
    for (int r = 0; r < ranks; r++) {
      uint64_t sum = 0;
      for (int s = 0; s < ranks; s++) sum += t.flow(context, s, r).shared;
      CHECK(poster_load(&w.card(context, r).signals[kSharedSignal]) == sum, "context %d, rank %d: the sum of all ranks' signals", context, r);
      CHECK(w.card(context, r).report.failed == NIC_FINE, "a card has failed");
      launches += w.card(context, r).launches;
      CHECK(isUntouched(w.receive[r].get(), w.bytes), "rank %d: bytes were written that nobody put", r);
    }
  printf("{\"layout\":%d,\"ranks\":%d,\"contexts\":%d,\"operations\":%lu,\"MiB\":%lu,\"laps\":%lu,\"launches\":%lu,\"sources changed\":%lu}\n", layout, ranks, contexts, t.operations.load(), t.bytes >> 20,
         requests / NIC_DEPTH / t.flows.size(), launches, t.changed.load());
}

#endif
