#!/usr/bin/env python3
"""What compute loses to CTAs held beside it, and what launches cost beside a thread that asks after events. JSON lines.

  beside.py LIBRARY machine|launches|compute [ROUNDS]

Run by beside.sh, which builds LIBRARY of beside.cu. `compute` needs PyTorch. Exit 1 where something failed; what was measured stands.
"""
import ctypes
import datetime
import importlib.metadata
import json
import os
import random
import statistics
import subprocess
import sys
import time

CTAS = (0, 8, 16, 24, 32, 64)
NCCL_SMEM = 21568 + 82240  # of 2.28.9 on sm_90: ncclShmemData and ncclShmemDynamicSize(); our kernels have 128 bytes or none
# (bytes, percent of a multiprocessor's that is to be shared memory). With little of it one that holds such CTAs has it as L1, and keeps
# that as long as they are there: products need more. A kernel can ask for the other.
SMEMS = ((0, -1), (0, 100), (NCCL_SMEM, -1))
LIMIT_MS = 50  # then CTAs go by themselves, and the round does not count
LAUNCHES = 2000
# (name, asked every so many us or without a pause, after so many events, what is around each launch, launches before the GPU is waited for, and
# what it is held against). Of launches with events the GPU may be the slower one: then those that fit into its queue tell what the host pays.
BASE, SHORT = "never", "never, 200 at once"
AROUND = NOTHING, EVENTS, QUESTION = "nothing", "events", "the question whether it is captured"
NO_PAUSE = -1
ARMS = [(BASE, 0, 0, NOTHING, LAUNCHES, BASE), ("never, again", 0, 0, NOTHING, LAUNCHES, BASE), (SHORT, 0, 0, NOTHING, 200, SHORT)]
ARMS += [(f"every {us} us after {events}", us, events, NOTHING, LAUNCHES, BASE) for us in (20, 80, 200, 500) for events in (1, 8)]
ARMS += [("without a pause after 1", NO_PAUSE, 1, NOTHING, LAUNCHES, BASE), ("asked whether captured", 0, 0, QUESTION, LAUNCHES, BASE),
         ("events recorded", 0, 0, EVENTS, LAUNCHES, BASE), ("events recorded, every 20 us after 1", 20, 1, EVENTS, LAUNCHES, BASE),
         ("events recorded, 200 at once", 0, 0, EVENTS, 200, SHORT)]


class Library:
    def __init__(self, path):
        self.so = ctypes.CDLL(os.path.abspath(path))
        i, d = ctypes.c_int, ctypes.c_double
        self.so.beside_error.restype = ctypes.c_char_p
        self.so.beside_hold.argtypes = [i, i, i, i, d]
        self.so.beside_launches.argtypes = [i, i, i, i, i, ctypes.POINTER(d)]
        self.so.beside_release.argtypes = [ctypes.POINTER(d)]
        sms, version, registers = i(), i(), (i * 2)()
        self.must(self.so.beside_open(ctypes.byref(sms), ctypes.byref(version), registers))
        self.sms, self.version, self.registers = sms.value, version.value, list(registers)

    def must(self, code):
        if code:
            raise RuntimeError(self.so.beside_error().decode())

    def hold(self, ctas, moves, smem, carveout):
        self.must(self.so.beside_hold(ctas, moves, smem, carveout, LIMIT_MS))

    def release(self):
        """How many ended by themselves, on how many multiprocessors they were, ms, GB/s."""
        out = (ctypes.c_double * 4)()
        self.must(self.so.beside_release(out))
        return tuple(out)

    def launches(self, every_us, events, around, at_once):
        """us of a launch, us that the GPU was behind, how often was asked, what makes it none."""
        out = (ctypes.c_double * 4)()
        self.must(self.so.beside_launches(LAUNCHES, every_us, events, AROUND.index(around), at_once, out))
        return tuple(out)


class Products:
    """What PyTorch computes: name -> (operation, times a round, floating-point operations or bytes, of which)."""

    def __init__(self):
        import torch
        self.torch, self.stream = torch, torch.cuda.Stream()
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.operations = {}
        for m, k, n, times in ((8192, 4096, 4096, 6), (4096, 4096, 11008, 4)):
            self.operations[f"matmul {m}x{k}x{n}"] = (self.matmul(m, k, n), times, 2 * m * k * n, "tflops")
        self.operations["multiply 64 MiB"] = (self.multiply(64 << 20), 40, 2 * (64 << 20), "tbs")
        torch.cuda.synchronize()

    def matmul(self, m, k, n):
        left, right = (self.torch.randn(shape, dtype=self.torch.bfloat16, device="cuda") for shape in ((m, k), (k, n)))
        out = self.torch.empty((m, n), dtype=self.torch.bfloat16, device="cuda")
        return lambda: self.torch.matmul(left, right, out=out)

    def multiply(self, size):
        source = self.torch.randn(size // 2, dtype=self.torch.bfloat16, device="cuda")
        out = self.torch.empty_like(source)
        return lambda: self.torch.mul(source, 2.0, out=out)

    def timed(self, operation, times):
        """ms of one of so many in a row. The GPU sleeps until the host has enqueued some."""
        with self.torch.cuda.stream(self.stream):
            self.torch.cuda._sleep(300_000)
            self.begin.record()
            for _ in range(times):
                operation()
            self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) / times


def spread(values, places):
    """Median, p10 and p90."""
    values = sorted(values)
    at = lambda share: values[round(share * (len(values) - 1))]
    return [round(x, places) for x in (statistics.median(values), at(0.1), at(0.9))]


def warm(products, operation, times, seconds=1.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        products.timed(operation, times)


def beside_held(library, products, operation, times, rounds):
    """(moves, smem, carveout, CTAs) -> [(ms, multiprocessors, GB/s)], and how many rounds did not count. All arms by turns, in another order each time."""
    arms = [(moves, *smem, ctas) for moves in (0, 1) for smem in SMEMS for ctas in CTAS]
    seen, expired = {arm: [] for arm in arms}, dict.fromkeys(arms, 0)
    for number in range(-1, rounds):  # one before, in which what is made on first use is made
        for arm in random.Random(number).sample(arms, len(arms)):
            moves, smem, carveout, ctas = arm
            ended = sms = gbs = 0
            if ctas == 0:
                ms = products.timed(operation, times)
            else:
                try:
                    library.hold(ctas, moves, smem, carveout)
                    ms = products.timed(operation, times)
                finally:
                    ended, sms, _, gbs = library.release()
            if ended:
                expired[arm] += 1
            elif number >= 0:
                seen[arm].append((ms, sms, gbs))
    return seen, expired


def compute(library, products, rounds, show):
    """True if all of it was measured."""
    whole = True
    for name, (operation, times, work, unit) in products.operations.items():
        row = {"figure": "compute beside held CTAs", "op": name}
        try:
            warm(products, operation, times)
            seen, expired = beside_held(library, products, operation, times, rounds)
        except Exception as err:  # whatever it is, the other operations' rows are to be had
            show({**row, "error": str(err)})
            whole = False
            continue
        for arm, results in seen.items():
            moves, smem, carveout, ctas = arm
            row |= {"kind": "moves memory" if moves else "spins", "smem": smem, "carveout": carveout, "k": ctas}
            base = seen[moves, smem, carveout, 0]
            if not results or not base:
                show({**row, "rounds": len(results), "expired": expired[arm], "error": f"held CTAs ended by themselves, after {LIMIT_MS} ms"})
                whole = False
                continue
            ms, p10, p90 = spread([r[0] for r in results], 4)
            alone, now = (statistics.median(r[0] for r in x) for x in (base, results))
            show({**row, "median_ms": ms, "p10_ms": p10, "p90_ms": p90, unit: round(work / now / 1e9, 3 if unit == "tbs" else 1), "ratio": round(now / alone, 4),
                  "sm_share": round(ctas / library.sms, 4), "lost": round(1 - alone / now, 4), "held_sms": round(statistics.median(r[1] for r in results)),
                  "held_gbs": round(statistics.median(r[2] for r in results), 1), "rounds": len(results), "expired": expired[arm]})
    return whole


def launches(library, rounds, show):
    """True if all of it was measured."""
    seen = {arm[0]: [] for arm in ARMS}
    for number in range(-2, rounds):
        for name, every_us, events, around, at_once, _ in random.Random(number).sample(ARMS, len(ARMS)):
            result = library.launches(every_us, events, around, at_once)
            if number >= 0:
                seen[name].append(None if result[3] else result)
    whole = True
    for name, every_us, events, around, at_once, against in ARMS:
        base = seen[against]
        row = {"figure": "launches beside asking", "arm": name, "every_us": every_us, "events": events, "around": around, "launches": LAUNCHES, "at_once": at_once, "against": against}
        results = [r for r in seen[name] if r]
        added = [r[0] - b[0] for r, b in zip(seen[name], base) if r and b]  # of the same round
        if not added:
            show({**row, "rounds": 0, "error": "events were over, or could not be asked after, in every round"})
            whole = False
            continue
        us, p10, p90 = spread([r[0] for r in results], 3)
        more, least, most = spread(added, 3)
        show({**row, "median_us": us, "p10_us": p10, "p90_us": p90, "added_us": more, "added_p10_us": least, "added_p90_us": most,
              "ratio": round(statistics.median(r[0] for r in results) / statistics.median(b[0] for b in base if b), 4),
              "gpu_behind_us": round(statistics.median(r[1] for r in results), 1), "asked": round(statistics.median(r[2] for r in results)),
              "rounds": len(results), "not_counted": len(seen[name]) - len(results)})
    return whole


def machine(library):
    def output(*words):
        try:
            return subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            return ""

    name, _, driver = output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "-i", "0").rpartition(", ")
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = None
    return {"figure": "beside machine", "machine": name, "driver": driver, "cuda": f"{library.version // 1000}.{library.version % 1000 // 10}", "torch": torch,
            "sms": library.sms, "registers": library.registers, "cpus": len(os.sched_getaffinity(0)), "date": datetime.datetime.now(datetime.timezone.utc).strftime("%FT%TZ"),
            "commit": os.environ.get("COMMIT") or output("git", "describe", "--always", "--dirty") or "unknown"}


def main(path, part, rounds=25):
    show = lambda row: print(json.dumps(row), flush=True)
    try:
        library = Library(path)
        if part == "machine":
            show(machine(library))
            return 0
        if part == "launches":
            return 0 if launches(library, int(rounds), show) else 1
        return 0 if compute(library, Products(), int(rounds), show) else 1
    except Exception as err:  # a line says what is missing
        show({"figure": f"beside {part}", "error": f"{type(err).__name__}: {err}"})
        return 1


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[2] not in ("machine", "launches", "compute"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
