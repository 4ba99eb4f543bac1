#!/usr/bin/env python3
"""What the daemon would have charged a choice, held against CUDA events of the same calls while nothing was watched.

  dynamiccld sweep --calls stream --samples samples.csv --out table.csv
  samples_check.py table.points.jsonl [graphs.points.jsonl] >> docs/figures/FILE.jsonl

One line for every collective and size, and a summary: how many points are within 5% or 1 us, and how many pairs of
choices that differ by more than 3% the two order alike; the same against CUDA events of the very calls that gave the
samples (same_calls), for over a network other calls of the same choice may take another time: how many pairs that ran
the same differ by more than 3% says so (same_choice). With the points of a sweep of graphs of the same machine each
line also says by how much a graph's call is cheaper, and by how much what was sampled is dearer than that, and the
summary how many pairs of which graphs differ samples order alike (graph_). Trees on one node are left out: nothing measures them there.
"""
import itertools
import json
import statistics
import sys


def points(path):
    with open(path) as f:
        return [p for p in map(json.loads, f) if p.get("outcome") == "ok"]


def machine(path):
    with open(path.replace(".points.jsonl", ".json")) as f:
        return json.load(f)


def measurable(p, nodes):
    return nodes > 1 or not p.get("ran", "").startswith("Tree")


def apart(a, b):
    return abs(a - b) / min(a, b) > 0.03


def check(stream, graphs, nodes):
    """Lines of every bucket, and the totals."""
    buckets = {}
    for p in stream:
        if p.get("sampled_us") and measurable(p, nodes):
            buckets.setdefault((p["collective"], p["bytes"]), []).append(p)
    graph = {(p["collective"], p["bytes"], p["action"], p.get("nth", 0)): p["median_us"] for p in graphs}
    lines, within, held = [], 0, 0
    for p in itertools.chain(*buckets.values()):
        p["graph_us"] = graph.get((p["collective"], p["bytes"], p["action"], p.get("nth", 0)))
    against = [("", "median_us"), ("same_calls_", "watched_us")] + ([("graph_", "graph_us")] if graph else [])
    pairs = {prefix + of: 0 for prefix, _ in against for of in ("pairs_more_than_3pct_apart", "ordered_alike")}
    pairs |= {"same_choice_pairs": 0, "same_choice_more_than_3pct_apart": 0}
    for (collective, size), all_points in sorted(buckets.items()):
        off = [p["sampled_us"] - p["median_us"] for p in all_points]
        good = sum(abs(d) <= max(1, 0.05 * p["median_us"]) for d, p in zip(off, all_points))
        line = {"collective": collective, "bytes": size, "choices": len(all_points), "within_5pct_or_1us": good,
                "sampled_less_events_us_median": round(statistics.median(off), 2),
                "events_us_default": next((p["median_us"] for p in all_points if p["action"] == "default"), None)}
        dearer = [p["watched_us"] - p["median_us"] for p in all_points if p.get("watched_us")]
        if dearer:
            line["watched_less_events_us_median"] = round(statistics.median(dearer), 2)
        in_graphs = [p for p in all_points if p["graph_us"]]
        if in_graphs:
            line["stream_less_graph_us_median"] = round(statistics.median(p["median_us"] - p["graph_us"] for p in in_graphs), 2)
            line["sampled_less_graph_us_median"] = round(statistics.median(p["sampled_us"] - p["graph_us"] for p in in_graphs), 2)
        for a, b in itertools.combinations(all_points, 2):
            for prefix, by in against:
                if a.get(by) and b.get(by) and apart(a[by], b[by]):
                    pairs[prefix + "pairs_more_than_3pct_apart"] += 1
                    pairs[prefix + "ordered_alike"] += (a[by] - b[by]) * (a["sampled_us"] - b["sampled_us"]) > 0
            if a.get("ran") and a["ran"] == b.get("ran"):
                pairs["same_choice_pairs"] += 1
                pairs["same_choice_more_than_3pct_apart"] += apart(a["median_us"], b["median_us"])
        within, held = within + good, held + len(all_points)
        lines.append(line)
    return lines, {"points": held, "within_5pct_or_1us": within} | pairs


def main(paths):
    if not 1 <= len(paths) <= 2:
        sys.exit(__doc__)
    described = machine(paths[0])
    identity = described["identity"]
    head = {"figure": "samples against CUDA events"}
    for key in ("machine", "nccl", "nranks", "nnodes", "transport", "condition", "driver"):
        head[key] = identity[key]
    head["date"], head["commit"] = described["date"], described["program"]
    nodes = identity["nnodes"]
    lines, totals = check(points(paths[0]), points(paths[1]) if len(paths) > 1 else [], nodes)
    for line in lines + [totals]:
        print(json.dumps(head | line))


if __name__ == "__main__":
    main(sys.argv[1:])
