/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of nic_stories.h: which of a launch's kernels stays how long, by what stands behind it and what is expected.
 */
#ifndef CARRIER_TEST_NIC_SUCCESSORS_H
#define CARRIER_TEST_NIC_SUCCESSORS_H

static bool comesIn3s(const std::atomic<bool> &what) {
  for (int i = 0; i < 3000 && !what; i++) usleep(1000);
  return what;
}

/* A card, whose number is n's, until it is over. */
struct Running {
  std::atomic<bool> over{false};
  std::thread kernel;
  Running(Card &c, const nic &n, unsigned helpers) {
    for (uint32_t &word : c.launch) word = 0;
    kernel = std::thread([this, n, helpers] {
      NicCrew crew = {};
      over = nicRunGrid(crew, dynamicclCarrierNic, n, helpers);
      nicDismiss(crew);
    });
  }
  bool ends() { return comesIn3s(over); }
  ~Running() { kernel.join(); }
};

/* The least of some times, in us, that a card takes which finds nothing to do. */
static int64_t idleUs(Card &c, const nic &n) {
  int64_t least = INT64_MAX;
  for (int i = 0; i < 30; i++) {
    const uint64_t from = nicNowNs();
    { Running card(c, n, 0); }
    least = std::min(least, (int64_t)(nicNowNs() - from) / 1000);
  }
  return least;
}

/* A launch's first card goes when it has nothing to do, whatever stands behind it and whatever is to come: another one does, which stays as long
 * as a kernel is to come that may ask for something, and serves it as often as it asks; and goes when another launch stands behind it, whatever
 * there is to do, for that one has more blocks. */
static void reserve() {
  World w(2, 1, kStoryBytes);
  Card &c = w.card(0, 0);
  c.ends = true;
  c.host.join();
  nic n = c.n;
  n.number = 7, n.lateNs = 1000000;
  storeHost(&c.report.next, n.number), storeCount(&c.launched, 1);
  n.followed = 1;
  {
    Running first(c, n, 1);
    CHECK(first.ends(), "a card stays for a kernel that is to come, and takes its places");
  }
  n.followed = 0, n.alone = 1;
  poster_queue &q = c.queue(1);
  posting p = putOf(w, 100000, true);
  {
    Running last(c, n, 0);
    for (int i = 0; i < 3; i++) {
      usleep(50000);
      CHECK(!last.over, "a card goes though a kernel is to come");
      post(&p);
      CHECK(poster_flush(&q), "it is there and does nothing");
    }
    storeCount(&c.ended, 1);
    CHECK(last.ends(), "a card stays though no kernel is to come");
  }
  storeCount(&c.ended, 0);
  {
    std::atomic<bool> enough{false};
    Running last(c, n, 0);
    std::thread poster([&] { while (!enough) post(&p), poster_flush(&q); });
    usleep(50000);
    CHECK(!last.over, "a card goes though there is something to do");
    storeHost(&c.report.next, n.number + 1);
    CHECK(last.ends(), "a card without blocks to help stays though a whole one stands behind it");
    n.alone = 0; /* who posts is to come to an end */
    Running next(c, n, 1);
    enough = true;
    poster.join();
    CHECK(next.ends(), "the whole one stays");
  }
  int64_t took, least;
  for (int tries = 5;; tries--) { /* threads that others keep from their CPUs are slow for as long as that */
    n.alone = 1, n.followed = 0;
    took = idleUs(c, n);
    n.alone = 0, n.followed = 1;
    least = idleUs(c, n);
    if (took < 10 * least) break;
    CHECK(tries > 1, "a card without blocks to help, of which nothing is asked and behind which one stands, takes %ld us, and another %ld", (long)took, (long)least);
  }
}

/* Neither a kernel nor its watch goes before another stands behind it, and one that finds nothing to do goes then at once. */
static void successors() {
  World w(2, 1, kStoryBytes);
  Card &c = w.card(0, 0);
  posting p = putOf(w, 100, true);
  storeHost(&c.report.next, 0);
  post(&p);
  while (poster_load(&w.card(0, 1).signals[0]) < 1) usleep(20);
  usleep(200000);
  CHECK(c.runs && c.launches == 1, "it ended though none stands behind it");
  post(&p);
  while (poster_load(&w.card(0, 1).signals[0]) < 2) usleep(20);
  storeHost(&c.report.next, 1);
  awaitEnd(c);
  c.ends = true; /* from here on nobody else starts it */
  c.host.join();
  CHECK(c.launches == 1, "%lu launches", c.launches.load());

  c.tell(NIC_IDLE_LOOKS, 1u << 30);
  {
    Running card(c, c.n, 1);
    CHECK(card.ends(), "it stays though it found nothing to do");
  }

  std::atomic<bool> over{false};
  nic n = c.n;
  n.number = 7, n.watchNs = 1000000;
  for (int side : {NIC_MAIN, NIC_SIDE}) {
    over = false;
    storeHost(&c.report.next, 7);
    std::thread stays([&] { dynamicclCarrierWatch(n), over = true; });
    usleep(50000);
    CHECK(!over && loadHost(&c.report.begun) == 7, "a watch went though none stands behind it");
    storeHost(&c.report.next, 8);
    stays.join();
    storeHost(&c.report.next, 7), over = false;
    std::thread sees([&] { dynamicclCarrierWatch(n), over = true; });
    poster_queue &q = c.queue(1, side);
    const uint64_t at = poster_reserve(&q, 1);
    if (layout == GDAKI_200) poster_ring(&q, at + 1); /* of a queue that is one thread's that may be seen first */
    else poster_ready(&q, at, 1);
    CHECK(comesIn3s(over), "a watch does not see what may be taken");
    sees.join();
    *q.ready = *q.doorbell = at; /* it was none */
  }

  /* Nothing was asked of it for long: it goes by itself, unless a kernel is to come that will. */
  n.watchNs = n.lateNs = 1000000;
  for (uint32_t launched : {0u, 1u, 0u}) {
    over = false;
    storeCount(&c.launched, launched), storeHost(&c.report.used, 6);
    std::thread stays([&] { dynamicclCarrierWatch(n), over = true; });
    usleep(50000);
    CHECK(launched == 0 || (!over && loadHost(&c.report.used) == 7), "a watch went though a kernel is to come");
    storeCount(&c.ended, launched);
    CHECK(comesIn3s(over), "a watch stays though no kernel is to come");
    CHECK(launched != 0 || loadHost(&c.report.used) == 6, "a watch tells of use though no kernel is to come");
    stays.join();
    storeCount(&c.ended, 0);
  }
}

#endif
