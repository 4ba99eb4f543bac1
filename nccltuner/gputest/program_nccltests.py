#!/usr/bin/env python3
"""Turns the table that an nccl-tests program prints into JSON lines: all_reduce_perf ... | program_nccltests.py NAME GRAPH GPUS REGISTER

Exits with 1 when the table has no row, or the program has counted wrong elements.
"""
import json
import re
import sys

COLLECTIVES = {"all_reduce_perf": "AllReduce", "all_gather_perf": "AllGather", "reduce_scatter_perf": "ReduceScatter",
               "broadcast_perf": "Broadcast", "alltoall_perf": "AllToAll"}
# A row: size, count, type, redop, root, then time (us), algbw, busbw (GB/s), #wrong, out of place and then in place.
COLUMNS = 13


def version(line):
    """The version of the library that runs, from the program's head: nccl-library=22809. Older programs do not say it."""
    found = re.search(r"nccl-library=(\d+)", line)
    if not found:
        return None
    code = int(found.group(1))
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


def row(line):
    """One line of the table as two results, or none: of 0 bytes, where a size has none for each rank, no call is made."""
    words = line.split()
    if len(words) < COLUMNS or not words[0].isdigit() or not words[1].isdigit() or words[0] == "0":
        return []
    results = []
    for in_place, at in ((False, 5), (True, 9)):
        time_us, _, bus, bad = words[at:at + 4]
        try:
            results.append({"bytes": int(words[0]), "type": words[2], "in_place": in_place, "time_us": float(time_us),
                            "busbw_gbs": float(bus), "wrong": None if bad == "N/A" else int(float(bad))})
        except ValueError:
            return []
    return results


def main(name, graph, gpus, register):
    head = {"program": name, "collective": COLLECTIVES.get(name, name), "gpus": int(gpus), "graph": int(graph), "register": int(register)}
    rows, wrong, nccl = 0, 0, None
    for line in sys.stdin:
        nccl = nccl or version(line)
        results = row(line)
        if not results:
            print(line, end="", file=sys.stderr)
        for result in results:
            rows += 1
            wrong += result["wrong"] or 0
            print(json.dumps({**head, **({"nccl": nccl} if nccl else {}), **result}), flush=True)
    if not rows:
        print(f"{name} printed no table", file=sys.stderr)
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:5]))
