#!/usr/bin/env python3
"""What a daemon's trace of puts over GIN says of faults that were switched on and off meanwhile (gin_trials.sh).

    gin_trials_count.py TRACE.csv SWITCHES.jsonl      one line a trial, and totals, on stdout

A line of SWITCHES: {"at": seconds since 1970, "fault": "none" | "backend-fallback" | "congestion"}; the last one is the end. Each way
from a rank to a peer over a context counts as a trial of its own. Ranks look twice a second and tell of a put that was there in two
looks, so it is made half a second to a second before. When it was made is told by its call's number, which grows between looks: so what was
made before a switch and told of behind it counts for neither delay. Alarms of the first quiet part are false ones. Those behind a
fault are counted by themselves: sizes that the program had left meet its end when they come back.
"""
import bisect
import collections
import csv
import json
import sys

LOOK_S = 0.5  # between two looks
SETTLE_S = 3.0  # behind a switch back, whose own alarms are none of these
RISES = ("backend-fallback", "congestion", "remote-side", "cpu-contention", "slow-rank")


def read_puts(lines):
    """Rows of puts as (seconds at which they were made, way, alarm, diagnosis), in the order in which they were told of."""
    rows = [r for r in csv.DictReader(lines) if r["collective"] == "put"]
    times = collections.defaultdict(list)  # of a communicator: when the newest call that has been told of was there, and its number
    for r in rows:
        r["at"], r["number"] = int(r["at_ns"]) / 1e9, int(r["seq"])
        told = times[r["comm"]]
        at = r["at"] - LOOK_S
        if told and told[-1][1] >= r["number"]:
            continue
        if told and at - told[-1][0] < LOOK_S / 2:  # the same look
            told[-1] = (told[-1][0], r["number"])
        else:
            told.append((at, r["number"]))
    for r in rows:
        way = tuple(r[k] for k in ("comm", "rank", "peer", "context"))
        yield made(times[r["comm"]], r["number"]), way, r["alarms"] == "1", r["diagnosis"]


def made(told, number):
    """Seconds at which a call was made, on a line between looks."""
    i = bisect.bisect_left([n for _, n in told], number)
    if i == 0:
        return told[0][0]
    if i == len(told):
        return told[-1][0]
    (t0, n0), (t1, n1) = told[i - 1], told[i]
    return t0 + (t1 - t0) * (number - n0) / (n1 - n0)


def middle(values):
    return sorted(values)[len(values) // 2] if values else None


def count(puts, switches):
    """Lines of trials, then one of totals."""
    puts = sorted(puts, key=lambda p: p[0])
    said = {}  # of a way, by the newest put
    totals = {f: collections.Counter() for f in ("backend-fallback", "congestion")}
    delays = {f: [] for f in totals}
    quiet, behind = collections.Counter(), collections.Counter()
    lines, at = [], 0
    for trial, (begin, end) in enumerate(zip(switches, switches[1:])):
        fault, ways = begin["fault"], {}
        while at < len(puts) and puts[at][0] < end["at"]:
            when, way, alarm, diagnosis = puts[at]
            at += 1
            said[way] = diagnosis
            if when < begin["at"]:
                continue
            w = ways.setdefault(way, {"puts": 0, "alarm_after": None, "right_after": None, "right_after_s": None})
            w["puts"] += 1
            w["said"] = diagnosis
            if fault == "none":
                if when >= begin["at"] + SETTLE_S:
                    part = quiet if trial == 0 else behind
                    part["puts"] += 1
                    part["alarms"] += alarm
                continue
            if alarm and w["alarm_after"] is None:
                w["alarm_after"] = w["puts"]
            if diagnosis == fault and w["right_after"] is None:
                w["right_after"], w["right_after_s"] = w["puts"], round(when - begin["at"], 2)
        line = {"figure": "gin trial", "trial": trial, "fault": fault, "seconds": round(end["at"] - begin["at"], 2), "ways": len(ways),
                "puts": sum(w["puts"] for w in ways.values()), "said": dict(collections.Counter(w["said"] for w in ways.values()))}
        if fault in totals:
            line |= {"alarm_after_puts": sorted(w["alarm_after"] for w in ways.values() if w["alarm_after"]),
                     "right_after_puts": sorted(w["right_after"] for w in ways.values() if w["right_after"]),
                     "right_after_s": sorted(w["right_after_s"] for w in ways.values() if w["right_after_s"] is not None)}
            t = totals[fault]
            t["trials"] += len(ways)
            t["right"] += sum(w["said"] == fault for w in ways.values())
            t["other"] += sum(w["said"] != fault and w["said"] in RISES for w in ways.values())
            t["detected"] += len(line["alarm_after_puts"])
            t["detected_within_32"] += sum(n <= 32 for n in line["alarm_after_puts"])
            delays[fault] += line["alarm_after_puts"]
        elif trial > 0:
            line["over"] = sum(w["said"] in ("recovered", "none") for w in ways.values())
        lines.append(line)
    end = {"figure": "gin trials", "quiet_puts": quiet["puts"], "quiet_alarms": quiet["alarms"], "puts_behind_faults": behind["puts"],
           "alarms_behind_faults": behind["alarms"]}
    for fault, t in totals.items():
        end[fault] = {k: t[k] for k in ("trials", "right", "other", "detected", "detected_within_32")} | {"alarm_after_puts_median": middle(delays[fault])}
    return lines + [end]


def main(argv):
    if len(argv) != 3:
        sys.exit(__doc__)
    with open(argv[2], encoding="utf-8") as f:
        switches = [json.loads(line) for line in f if line.strip()]
    with open(argv[1], encoding="utf-8", newline="") as f:
        for line in count(read_puts(f), switches):
            print(json.dumps(line))


if __name__ == "__main__":
    main(sys.argv)
