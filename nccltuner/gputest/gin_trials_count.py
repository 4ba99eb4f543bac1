#!/usr/bin/env python3
"""What a daemon's trace of puts over GIN says of faults that were switched on and off meanwhile (gin_trials.sh).

    gin_trials_count.py TRACE.csv SWITCHES.jsonl [TABLES.jsonl]      one line a trial, and totals, on stdout

A line of SWITCHES: {"at": seconds since 1970, "fault": "none" | "backend-fallback" | "congestion"}; the last one is the end. Each way
from a rank to a peer over a context counts as a trial of its own. Ranks look twice a second and tell of a put that was there in two
looks, so it is made half a second to a second before. When it was made is told by its call's number, which grows between looks: so what was
made before a switch and told of behind it counts for neither delay. Delays are told in puts of the way, in seconds and in calls over GIN, of which
few are timed: which call was made at a switch is on the same line between looks. Alarms of the first quiet part are false ones. Those behind a
fault are counted by themselves: sizes that the program had left meet its end when they come back.
A line of TABLES: {"trial": number, "fault": as above, "table": what `dynamiccld table --json` said at the end of it}. Each is a line more, with
what was in force for each collective and size, how many of these are over GIN, and how many are another choice than at the end of the trial before.
"""
import bisect
import collections
import csv
import json
import sys

LOOK_S = 0.5  # between two looks
SETTLE_S = 3.0  # behind a switch back, whose own alarms are none of these
DELAYS = ("alarm_after_puts", "alarm_after_s", "alarm_after_calls")
RISES = ("backend-fallback", "congestion", "remote-side", "cpu-contention", "slow-rank")


def read_puts(lines):
    """Rows of puts as (seconds at which they were made, way, alarm, diagnosis, the call's number), in the order in which they were told of."""
    rows = [r for r in csv.DictReader(lines) if r["collective"] == "put"]
    times = collections.defaultdict(list)  # of a communicator, at each look: the number of the newest call that has been told of, and when it was there
    for r in rows:
        r["at"], r["number"] = int(r["at_ns"]) / 1e9, int(r["seq"])
        told = times[r["comm"]]
        at = r["at"] - LOOK_S
        if told and told[-1][0] >= r["number"]:
            continue
        if told and at - told[-1][1] < LOOK_S / 2:  # the same look
            told[-1] = (r["number"], told[-1][1])
        else:
            told.append((r["number"], at))
    for r in rows:
        way = tuple(r[k] for k in ("comm", "rank", "peer", "context"))
        yield between(times[r["comm"]], r["number"]), way, r["alarms"] == "1", r["diagnosis"], r["number"]


def between(points, x):
    """On the line through the points, of which it is the first coordinate; beyond their ends what is there."""
    i = bisect.bisect_left(points, (x,))
    if i == 0:
        return points[0][1]
    if i == len(points):
        return points[-1][1]
    (x0, y0), (x1, y1) = points[i - 1], points[i]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


class Calls:
    """Which call over GIN a communicator was at, by when its puts were made."""

    def __init__(self, puts):
        self.made = collections.defaultdict(list)
        for when, way, _, _, number in puts:
            of = self.made[way[0]]
            if not of or (when > of[-1][0] and number > of[-1][1]):
                of.append((when, number))

    def at(self, comm, when):
        return round(between(self.made[comm], when))

    def during(self, begin, end):
        return sum(self.at(c, end) - self.at(c, begin) for c in self.made)


def middle(values):
    return sorted(values)[len(values) // 2] if values else None


def count(puts, switches):
    """Lines of trials, then one of totals."""
    puts = sorted(puts, key=lambda p: p[0])
    calls = Calls(puts)
    said = {}  # of a way, by the newest put
    totals = {f: collections.Counter() for f in ("backend-fallback", "congestion")}
    delays = {f: {what: [] for what in DELAYS} for f in totals}
    quiet, behind = collections.Counter(), collections.Counter()
    lines, at = [], 0
    for trial, (begin, end) in enumerate(zip(switches, switches[1:])):
        fault, ways = begin["fault"], {}
        while at < len(puts) and puts[at][0] < end["at"]:
            when, way, alarm, diagnosis, number = puts[at]
            at += 1
            said[way] = diagnosis
            if when < begin["at"]:
                continue
            w = ways.setdefault(way, {"puts": 0, "alarm": None, "right_after": None, "right_after_s": None})
            w["puts"] += 1
            w["said"] = diagnosis
            if fault == "none":
                if when >= begin["at"] + SETTLE_S:
                    part = quiet if trial == 0 else behind
                    part["puts"] += 1
                    part["alarms"] += alarm
                continue
            if alarm and w["alarm"] is None:
                w["alarm"] = w["puts"], round(when - begin["at"], 2), number - calls.at(way[0], begin["at"])
            if diagnosis == fault and w["right_after"] is None:
                w["right_after"], w["right_after_s"] = w["puts"], round(when - begin["at"], 2)
        line = {"figure": "gin trial", "trial": trial, "fault": fault, "seconds": round(end["at"] - begin["at"], 2), "ways": len(ways),
                "calls": calls.during(begin["at"], end["at"]), "puts": sum(w["puts"] for w in ways.values()), "said": dict(collections.Counter(w["said"] for w in ways.values()))}
        if fault in totals:
            alarms = list(zip(*(w["alarm"] for w in ways.values() if w["alarm"]))) or [()] * len(DELAYS)
            line |= {what: sorted(values) for what, values in zip(DELAYS, alarms)}
            line |= {"right_after_puts": sorted(w["right_after"] for w in ways.values() if w["right_after"]),
                     "right_after_s": sorted(w["right_after_s"] for w in ways.values() if w["right_after_s"] is not None)}
            t = totals[fault]
            t["trials"] += len(ways)
            t["right"] += sum(w["said"] == fault for w in ways.values())
            t["other"] += sum(w["said"] != fault and w["said"] in RISES for w in ways.values())
            t["detected"] += len(line["alarm_after_puts"])
            t["detected_within_32"] += sum(n <= 32 for n in line["alarm_after_puts"])
            for what in DELAYS:
                delays[fault][what] += line[what]
        elif trial > 0:
            line["over"] = sum(w["said"] in ("recovered", "none") for w in ways.values())
        lines.append(line)
    settled = min(switches[0]["at"] + SETTLE_S, switches[1]["at"])
    end = {"figure": "gin trials", "quiet_s": round(switches[1]["at"] - settled, 2), "quiet_calls": calls.during(settled, switches[1]["at"]),
           "quiet_puts": quiet["puts"], "quiet_alarms": quiet["alarms"], "puts_behind_faults": behind["puts"], "alarms_behind_faults": behind["alarms"]}
    for fault, t in totals.items():
        end[fault] = {k: t[k] for k in ("trials", "right", "other", "detected", "detected_within_32")}
        for what, values in delays[fault].items():
            end[fault] |= {what + "_median": middle(values), what + "_most": max(values, default=None)}
    return lines + [end]


def choices(tables):
    """A line for each table: what was in force."""
    before, lines = {}, []
    for t in tables:
        comms = {b.get("comm") for b in t["table"]["buckets"]}
        now = {f'{b["comm"] + " " if len(comms) > 1 else ""}{b["collective"]} {b["min_bytes"]}': b["choice"] for b in t["table"]["buckets"]}
        lines.append({"figure": "gin trial choices", "trial": t["trial"], "fault": t["fault"], "sizes": len(now),
                      "over_gin": sum(c.startswith("gin/") for c in now.values()),
                      "changed": sum(now[k] != before[k] for k in now if k in before), "choices": now})
        before = now
    return lines


def read_lines(name):
    with open(name, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def main(argv):
    if len(argv) not in (3, 4):
        sys.exit(__doc__)
    tables = choices(read_lines(argv[3])) if len(argv) == 4 else []
    with open(argv[1], encoding="utf-8", newline="") as f:
        for line in tables + count(read_puts(f), read_lines(argv[2])):
            print(json.dumps(line))


if __name__ == "__main__":
    main(sys.argv)
