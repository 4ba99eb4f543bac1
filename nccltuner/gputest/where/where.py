#!/usr/bin/env python3
"""Whose a call's time is: rows of what where.c found in the ranks of `dynamiccld bench`, beside the run's own.

    where.py RESULTS.jsonl FOLDER SECONDS CALLS

FOLDER has ARM-PID.tsv of each rank, asked for SECONDS within the run's one phase; CALLS is `bench --calls`. RESULTS.jsonl is what that run wrote, and gets
a line of each rank. us: of one call, by library; what a rank waits for its arm's turn in is in libc's, so libc's and the vdso's say nothing.
"""
import collections
import glob
import json
import os
import re
import sys

EVERY_US = 100  # where.c
LISTED = 40     # addresses of our own libraries that a row has, the most frequent first


def phase_of(results):
    """The run's point: there must be one, or its calls cannot be told apart."""
    with open(results, encoding="utf-8") as lines:
        phases = [row for row in map(json.loads, lines) if row.get("kind") == "phase"]
    if not phases or len(phases[-1]["points"]) != 1:
        raise SystemExit(f"{results}: a phase of one collective and one size is wanted")
    return phases[-1]


def rank_row(file, phase, seconds, calls):
    """One rank's: where it was, and what that is of a call."""
    arm, pid = re.fullmatch(r"(.+)-(\d+)\.tsv", os.path.basename(file)).groups()
    libraries, addresses = collections.Counter(), collections.Counter()
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            library, address = line.split()
            libraries[library] += 1
            if "dynamiccl" in library:
                addresses[f"{library}+{address}"] += 1
    made = phase["rounds"] * calls * seconds / phase["seconds"]
    point = phase["points"][0]
    return {"figure": "where the thread that calls is", "arm": arm, "pid": int(pid), "collective": point["collective"], "bytes": point["bytes"],
            "every_us": EVERY_US, "samples": libraries.total(), "calls": round(made),
            "us": {library: round(n * EVERY_US / made, 3) for library, n in libraries.most_common() if n * EVERY_US / made >= 0.001},
            "libraries": dict(libraries.most_common()), "addresses": dict(addresses.most_common(LISTED))}


def main(results, folder, seconds, calls):
    phase = phase_of(results)
    files = sorted(glob.glob(os.path.join(folder, "*.tsv")))
    if not files:
        raise SystemExit(f"{folder}: no rank has written where it was, which has to be before the run's end")
    rows = [rank_row(file, phase, seconds, calls) for file in files]
    with open(results, "a", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row) + "\n")
    for arm in sorted({row["arm"] for row in rows}):
        of = [row["us"] for row in rows if row["arm"] == arm]
        print(f"{arm}: " + ", ".join(f"{library} {sum(us.get(library, 0) for us in of) / len(of):.2f} us" for library in list(of[0])[:8]))


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
