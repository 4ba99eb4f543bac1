#!/usr/bin/env python3
"""Does a daemon tell that what kernels of ours take in CUDA graphs has changed, and only then? A program replays its graphs while
copies between GPUs begin beside it and end.

  nccltuner/gputest/replay_changes.py --store FILE --out FILE.jsonl [-- COMMAND...]

A daemon with what the store knows (`dynamiccld calibrate`), and the program (examples/decode.py, which replays for as long as the three
phases take) under `dynamiccld run`. For each choice that its graphs hold a JSON line: at the end of each phase the replays that were
told of, their cost since the last change, and changes called in it. Exit: 0 if nothing was called before the copies and something while they ran.
"""
import argparse
import http.client
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

from program_bench import ROOT, machine, output
from program_run import MARK, marked, send

DECODE = "torchrun --nproc-per-node {gpus} examples/decode.py --shapes 8b --batches 1,32,128 --positions 0 --warm 0 --replays 400 --rounds {rounds}"
ROUND_S = 2.0  # of DECODE, at least: it is ended when the phases are over
STEADY = 200  # replays told of each choice before the first phase: a level is known by then


def options(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True, metavar="FILE", help="what the daemon knows at the start; a copy is used")
    parser.add_argument("--out", default="-", metavar="FILE", help="JSON lines are appended to it (standard output)")
    parser.add_argument("--phases", default="20,15,20", metavar="S,S,S", help="seconds before, with and after the copies (20,15,20)")
    parser.add_argument("--load", default=f"{sys.executable} {os.path.abspath(__file__)} --copy", metavar="COMMAND", help="another load than copies")
    parser.add_argument("--choices", type=int, default=3, metavar="N", help="that graphs hold, of ours at least (3)")
    parser.add_argument("--start", type=float, default=120, metavar="SECONDS", help="until graphs replay (120)")
    parser.add_argument("command", nargs="*", help="another program, which ends when it is interrupted")
    given = parser.parse_args(argv)
    given.phases = [float(s) for s in given.phases.split(",")]
    if len(given.phases) != 3:
        parser.error("--phases has three times")
    return given


def copy():
    """Every GPU to the next one, until it is killed."""
    import torch
    gpus = torch.cuda.device_count()
    parts = [torch.zeros(256 << 20, dtype=torch.uint8, device=f"cuda:{i}") for i in range(gpus)]
    into = [torch.zeros(256 << 20, dtype=torch.uint8, device=f"cuda:{(i + 1) % gpus}") for i in range(gpus)]
    print("copying", flush=True)
    while True:
        for _ in range(8):
            for a, b in zip(parts, into):
                b.copy_(a, non_blocking=True)
        for i in range(gpus):
            torch.cuda.synchronize(i)


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("daemon", timeout=10)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self.path)


def replays(directory):
    """By communicator, collective, bytes and choice."""
    connection = Unix(os.path.join(directory, "control.sock"))
    try:
        connection.request("GET", "/v1/replays")
        told = json.load(connection.getresponse())
    except (OSError, ValueError):
        return {}  # the daemon is not there yet
    finally:
        connection.close()
    return {(r["comm"], r["collective"], r["bytes"], r["choice"]): r for r in told}


def lines(names, seen):
    """Of what was seen at the beginning and at the end of each phase, a line for each choice."""
    for key in sorted(set.intersection(*(set(s) for s in seen))):
        phases = []
        for name, before, after in zip(names, seen, seen[1:]):
            before, after = before[key], after[key]
            phases.append({"phase": name, "replays": after["replays"] - before["replays"], "changes": after["changes"] - before["changes"],
                           "signal_median_us": round(after["signal"]["median_ns"] / 1e3, 3), "changed": after.get("changed")})
        yield {"collective": key[1], "bytes": key[2], "choice": key[3], "phases": phases}


def tells(rows):
    """Nothing before, and something while there is a load."""
    return bool(rows) and not any(r["phases"][0]["changes"] for r in rows) and any(r["phases"][1]["changes"] for r in rows)


def until(condition, seconds, process):
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if condition():
            return True
        time.sleep(0.2)
    return False


class Started:
    """Processes that are ended, and of which nothing is left: launchers give workers sessions of their own."""

    def __init__(self):
        self.mark, self.all = uuid.uuid4().hex, []

    def begin(self, words, **more):
        self.all.append(subprocess.Popen(words, cwd=ROOT, env={**os.environ, MARK: self.mark}, start_new_session=True, **more))
        return self.all[-1]

    def end(self):
        send([p.pid for p in self.all if p.poll() is None], signal.SIGTERM)
        end = time.monotonic() + 20
        while any(p.poll() is None for p in self.all) and time.monotonic() < end:
            time.sleep(0.1)
        send(marked(self.mark), signal.SIGKILL)
        for p in self.all:
            p.wait()


def session(given, tmp, started):
    """What was seen at the beginning of the first phase and at the end of each; None: graphs did not replay."""
    directory, store = os.path.join(tmp, "run"), os.path.join(tmp, "store.db")
    os.mkdir(directory, 0o700)
    shutil.copyfile(given.store, store)
    started.begin(["bin/dynamiccld", "serve", "--dir", directory, "--store", store, "--listen", ""])
    rounds = int(sum(given.phases) / ROUND_S + given.start) + 1
    words = given.command or shlex.split(DECODE.format(gpus=machine()["gpus"], rounds=rounds))
    time.sleep(1)
    program = started.begin(["bin/dynamiccld", "run", "--no-explore", "--dir", directory, "--"] + words, stdout=sys.stderr)

    def known():
        told = replays(directory)
        return len(told) >= given.choices and all(r["replays"] >= STEADY for r in told.values())

    if not until(known, given.start, program):
        return None
    seen = [replays(directory)]
    for i, seconds in enumerate(given.phases):
        load = None
        if i == 1:
            load = started.begin(shlex.split(given.load), stdout=subprocess.PIPE)
            load.stdout.readline()  # it has begun
        time.sleep(seconds)
        seen.append(replays(directory))
        if load:
            load.kill()
            load.wait()
    return seen if program.poll() is None else None


def main(argv):
    if argv == ["--copy"]:
        return copy()
    given = options(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is ended
    started = Started()
    with tempfile.TemporaryDirectory(prefix="dyn-replays.") as tmp:
        try:
            seen = session(given, tmp, started)
        finally:
            started.end()
    if seen is None:
        print("graphs of ours did not replay, or not to the end: see above; a store of this NCCL's calibration is needed", file=sys.stderr)
        return 1
    rows = list(lines(("before", "copies", "after"), seen))
    about = {"figure": "replay changes", **machine(), "load": given.load if "--copy" not in given.load else "copies to the next GPU",
             "commit": os.environ.get("COMMIT") or output("git", "describe", "--always", "--dirty") or "unknown",
             "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "tells": tells(rows)}
    with open(given.out, "a", encoding="utf-8") if given.out != "-" else sys.stdout as out:
        for row in [about] + rows:
            print(json.dumps({**row, "figure": "replay changes"}), file=out)
    return 0 if about["tells"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
