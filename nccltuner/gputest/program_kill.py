#!/usr/bin/env python3
"""Starts ranks, kills one (kill -9) while all of them are in collectives, and times until each other one has its error.

  program_kill.py --ranks 2 --out FILE.jsonl -- python3 nccltuner/gputest/kill_rank.py

Ranks are told who they are as by torchrun, which itself would end the others. One JSON line. It passes if our kernels ran, every
survivor had an error within --bound and said on standard error which rank died, what they had enqueued has ended while they
still live, and no GPU has anything to do then (nvidia-smi's utilization; --no-gpu does not look).
"""
import argparse
import datetime
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time

from program_bench import machine, output
from program_stats import json_line

START_S = 180  # until all ranks go round
IDLE_S = 15  # until nvidia-smi says so, whose figure is of the last second or so


class Rank:
    def __init__(self, words, rank, ranks, port):
        env = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        self.rank, self.said, self.told, self.ended = rank, [], {}, None
        self.process = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
        self.threads = [threading.Thread(target=f, daemon=True) for f in (self.hear, self.read, self.wait)]
        for thread in self.threads:
            thread.start()

    def hear(self):
        for line in self.process.stdout:
            for name in json_line(line) or ():
                self.told.setdefault(name, (time.monotonic(), json_line(line)))

    def read(self):
        for line in self.process.stderr:
            self.said.append((time.monotonic(), line.rstrip()))
            print(f"rank {self.rank}: {line.rstrip()}", file=sys.stderr, flush=True)

    def wait(self):
        self.process.wait()
        self.ended = time.monotonic()

    def at(self, name):
        return self.told[name][0] if name in self.told else None

    def error_at(self):
        """The call that failed, or the end of the process."""
        return min((t for t in (self.at("error"), self.ended) if t is not None), default=None)


def until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def utilization():
    return [int(x) for x in output("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits").split() if x.isdigit()]


def survivor(rank, killed, process, at):
    """Fields of one that should have had its error."""
    since = lambda t: None if t is None else round(t - at, 2)
    died = re.compile(rf"\brank {killed}, process {process}, is dead")
    named = next((t for t, line in rank.said if died.search(line)), None)
    return {"rank": rank.rank, "error_s": since(rank.error_at()), "named_s": since(named), "drained_s": since(rank.at("drained")),
            "error": rank.told["error"][1]["error"] if "error" in rank.told else None, "ended_s": since(rank.ended)}


def run(given, ranks):
    """Fields of the line, pass among them."""
    if not until(lambda: all("ready" in r.told or r.ended for r in ranks), START_S) or any(r.ended for r in ranks):
        return {"pass": False, "why": "not all ranks came to go round"}
    first = ranks[0].told["ready"][1]
    line = {k: first[k] for k in ("nccl", "torch") if k in first}
    line["kernels"] = [r.told["ready"][1]["kernels"] for r in ranks]
    time.sleep(given.after)
    if any(r.ended or "error" in r.told for r in ranks):
        return {**line, "pass": False, "why": "a rank failed before one was killed"}
    killed, others = ranks[given.kill], [r for r in ranks if r.rank != given.kill]
    at = time.monotonic()
    killed.process.kill()
    until(lambda: all(r.error_at() for r in others), given.bound)
    until(lambda: all("drained" in r.told or r.ended for r in others), given.bound)
    busy = []
    if given.gpu:  # while the survivors live: a kernel that spins would be seen
        until(lambda: not any(utilization() or [1]), IDLE_S)
        busy = utilization() or [None]
    survivors = [survivor(r, given.kill, killed.process.pid, at) for r in others]
    alive, slowest = [r.rank for r in others if not r.ended], [s["error_s"] for s in survivors]
    why = [f"rank {s['rank']}: no error within {given.bound:g} s" for s in survivors if s["error_s"] is None or s["error_s"] > given.bound]
    why += [f"rank {s['rank']} did not say that rank {given.kill} died" for s in survivors if s["named_s"] is None]
    why += [f"rank {s['rank']}: the GPU has not ended what was enqueued" for s, r in zip(survivors, others) if not r.ended and not (r.at("drained") and r.told["drained"][1]["drained"])]
    why += ["our kernels did not run"] if not all(line["kernels"]) else []
    why += ["GPUs have something to do"] if any(x != 0 for x in busy) else []
    return {**line, "pass": not why, "why": "; ".join(why), "survivors": survivors, "slowest_s": None if None in slowest else max(slowest),
            "alive_when_looked_at": alive, "utilization": busy}


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--kill", type=int, default=-1, metavar="RANK", help="(the last)")
    parser.add_argument("--after", type=float, default=2, metavar="SECONDS", help="that all go round before (2)")
    parser.add_argument("--bound", type=float, default=5, metavar="SECONDS", help="until every other rank has its error (5)")
    parser.add_argument("--name", default="", help="what ranks do, in the line")
    parser.add_argument("--no-gpu", dest="gpu", action="store_false", help="do not look at utilization")
    parser.add_argument("--out", default="-", metavar="FILE", help="the JSON line is appended (standard output)")
    parser.add_argument("command", nargs="+", metavar="COMMAND")
    given = parser.parse_args(argv)
    given.kill %= given.ranks
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ranks = [Rank(given.command, r, given.ranks, port) for r in range(given.ranks)]
    try:
        line = run(given, ranks)
    finally:
        for r in ranks:
            r.process.stdin.close()
        until(lambda: all(r.ended for r in ranks), 10)
        for r in ranks:
            r.process.kill()
    line = {"figure": "a rank killed", "name": given.name, "ranks": given.ranks, "killed": given.kill, "bound_s": given.bound, **line, **machine(),
            "commit": os.environ.get("PROGRAM_COMMIT") or output("git", "describe", "--always", "--dirty") or "unknown",
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
    print(json.dumps(line), flush=True)
    if given.out != "-":
        with open(given.out, "a") as f:
            f.write(json.dumps(line) + "\n")
    return 0 if line["pass"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
