#!/usr/bin/env python3
"""Runs a program with and without DynamICCL, interleaved, and compares the times that it prints as JSON lines.

  nccltuner/gputest/program_bench.py --figure NAME --arm plain --arm run --key batch --metric median_us -- COMMAND...

Every arm is NAME=KIND [VAR=VALUE]... [OPTION]..., for example --arm 'observe=run --learner default'. Kinds: plain (no
plugin), run (under bin/dynamiccld run, which gets the options), plugin (the plugin, no daemon). In every repetition each
arm runs once, the order rotates. A `run` arm keeps its store over repetitions. DYNAMICCL_* that is set around it no arm gets,
what its own spec sets it does (nccl=run DYNAMICCL_NO_KERNELS=1: NCCL's own choices alone). Written to --out, as JSON lines: one a run, as
soon as it has ended, and one a comparison with the first arm.
"""
import argparse
import datetime
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile

import program_run
from program_arms import KINDS, Arm
from program_stats import INTERVAL, compare, json_line, wrong

# Its lines, and the rows of its table: a collective, a size, and the choice.
SAID = re.compile(r"dynamiccld: |  (AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|AllToAll) +\d+ [KMG]?i?B |  and \d+ sizes")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def output(*words):
    """What a command prints, or "" where it is missing or fails."""
    try:
        return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def machine():
    """Where this is measured; a machine without nvidia-smi says so."""
    rows = [row.split(", ") for row in output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()]
    if not rows:
        return {"gpu": "none", "gpus": 0}
    return {"gpu": rows[0][0], "gpus": len(rows), "driver": rows[0][-1]}


def options(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", required=True, help="name of what is measured, in every line")
    parser.add_argument("--arm", action="append", required=True, metavar="SPEC", help=f"repeat it; the first is the base. {KINDS}")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="repetitions of every arm (3)")
    parser.add_argument("--prepare", default="", metavar="COMMAND", help="run once under every `run` arm before, so that it can learn")
    parser.add_argument("--store", default="", metavar="FILE", help="what `run` arms know at the start: a copy of this store")
    parser.add_argument("--key", default="program", metavar="A,B", help="fields that tell results of a run apart (program)")
    parser.add_argument("--metric", default="median_us", metavar="FIELD", help="the time to compare (median_us)")
    parser.add_argument("--zero", default="wrong", metavar="A,B", help="fields that must be 0 where they are (wrong)")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="for one run (300)")
    parser.add_argument("--budget", type=float, default=float("inf"), metavar="SECONDS",
                        help="for all of it: then no further run is begun, and what is there is compared")
    parser.add_argument("--nccl-lib", default="", metavar="FILE", help="another libnccl.so.2, preloaded under every arm")
    parser.add_argument("--out", default="-", metavar="FILE", help="JSON lines are appended to it (standard output)")
    parser.add_argument("--logs", default=os.path.join(ROOT, ".cache", "program"), metavar="DIR", help="standard error of every run")
    parser.add_argument("command", nargs="+", metavar="COMMAND")
    given = parser.parse_args(argv)
    if given.repeat < 1:
        parser.error("--repeat must be at least 1")
    try:
        given.arm = [Arm(spec) for spec in given.arm]
    except ValueError as err:
        parser.error(str(err))
    if len({arm.name for arm in given.arm}) < len(given.arm):
        parser.error("two arms have one name; write NAME=KIND")
    for name in ("nccl_lib", "store"):
        path = getattr(given, name)
        if path and not os.path.isfile(path):
            parser.error(f"no file {path}")
    given.key, given.zero = given.key.split(","), given.zero.split(",")
    return given


def report(path):
    """What `dynamiccld run` said: what was chosen and what it gained."""
    if not os.path.exists(path):
        return []
    with open(path, errors="replace") as f:
        return [line.rstrip() for line in f if SAID.match(line)]


class Bench:
    def __init__(self, given, state):
        self.given, self.began = given, datetime.datetime.now(datetime.timezone.utc)
        self.out = sys.stdout if given.out == "-" else open(given.out, "a")
        self.head = {"figure": given.figure, **machine(),
                     "commit": os.environ.get("PROGRAM_COMMIT") or output("git", "describe", "--always", "--dirty") or "unknown"}
        self.more = {"LD_PRELOAD": os.path.abspath(given.nccl_lib)} if given.nccl_lib else {}
        self.nccl = None
        os.makedirs(given.logs, exist_ok=True)
        for i, arm in enumerate(given.arm):
            arm.prepare(os.path.join(state, str(i)), given.store)  # a short path: a socket's has at most 107 bytes
        self.runs = {arm.name: [] for arm in given.arm}
        self.failed = 0

    def left(self):
        return self.given.budget - (datetime.datetime.now(datetime.timezone.utc) - self.began).total_seconds()

    def write(self, line):
        print(json.dumps({**self.head, "nccl": self.nccl, **line}), file=self.out, flush=True)

    def run(self, arm, words, repetition):
        """One run of one arm; repetition None is the preparation, which is not compared."""
        what = "preparation" if repetition is None else f"repetition {repetition + 1} of {self.given.repeat}"
        print(f"== {arm.name}, {what}: {shlex.join(words)}", file=sys.stderr, flush=True)
        log = os.path.join(self.given.logs, f"{self.given.figure.replace(' ', '-').replace('/', '-')}-{arm.name}-{what.split(' of')[0].replace(' ', '-')}")
        results, others = [], open(log + ".out", "w")

        def on_line(line):
            others.write(line)
            others.flush()
            result = json_line(line)
            if result is not None:
                results.append(result)
                print(line.rstrip(), file=sys.stderr, flush=True)

        line = {"arm": arm.name, "kind": arm.kind, "options": arm.options, "variables": arm.variables, "repetition": repetition,
                "command": words, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
        try:
            code, seconds, late = program_run.run(arm.command(ROOT, words), arm.environment(ROOT, os.environ, self.more),
                                                  min(self.given.timeout, max(self.left(), 1)), log + ".err", on_line)
        except OSError as err:
            code, seconds, late = 127, 0.0, False
            print(f"{arm.name}: {err}", file=sys.stderr)
        finally:
            others.close()
        self.nccl = next((r["nccl"] for r in results if "nccl" in r), self.nccl)
        bad = incorrect = [f"{name} is {r[name]}" for r in results for name in wrong(r, self.given.zero)]
        if late:
            bad = bad + [f"not done after {seconds:.0f} s"]
        elif code:
            bad = bad + [f"exit code {code}"]
        elif repetition is not None and not any(self.given.metric in r for r in results):
            bad = bad + [f"no JSON line with {self.given.metric}"]
        line.update(exit_code=code, seconds=round(seconds, 1), timed_out=late, failed=bad, results=results)
        if arm.kind == "run":
            line["report"] = report(log + ".err")
        self.write(line)
        if bad:
            self.failed += 1
            print(f"FAILED: {'; '.join(bad)}; its standard error is {log}.err and ends:", file=sys.stderr)
            if os.path.exists(log + ".err"):
                with open(log + ".err", errors="replace") as f:
                    sys.stderr.write("".join(f.readlines()[-25:]))
        if repetition is not None and not incorrect:
            self.runs[arm.name].append(line)  # of a run that broke off, what it printed counts; wrong results never do

    def all(self):
        for arm in self.given.arm:
            if self.given.prepare and arm.kind == "run":
                self.run(arm, shlex.split(self.given.prepare), None)
        arms = self.given.arm
        for repetition in range(self.given.repeat):
            turn = repetition % len(arms)
            for arm in arms[turn:] + arms[:turn]:
                if self.left() <= 0:
                    print(f"the budget of {self.given.budget:.0f} s is spent: {arm.name} of repetition {repetition + 1} is left out", file=sys.stderr)
                    self.failed += 1
                    continue
                self.run(arm, self.given.command, repetition)

    def summary(self):
        base, *arms = self.given.arm
        for arm in arms:
            for line in compare(self.runs[base.name], self.runs[arm.name], self.given.key, self.given.metric):
                self.write({"comparison": f"{arm.name} against {base.name}", "metric": self.given.metric, **line, "interval": INTERVAL})
                times = f"{line['base_median']} and {line['arm_median']}, " if "base_median" in line else ""
                print(f"{arm.name} against {base.name}: {line['key']}: {times}{line['speedup']} {line['speedup_interval95']}", file=sys.stderr)


def main(argv):
    given = options(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is there is compared, and the run in hand ended
    with tempfile.TemporaryDirectory(prefix="dyn") as state:
        bench = Bench(given, state)
        try:
            bench.all()
        except KeyboardInterrupt:
            bench.failed += 1
        finally:
            bench.summary()
            if bench.out is not sys.stdout:
                bench.out.close()
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
