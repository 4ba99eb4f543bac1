#!/usr/bin/env python3
"""A rank of program_kill.py: AllReduces without an end, in our kernels, until one fails because another rank has died.

Lines on standard output: {"ready": ...} when it goes round, {"error": ...} when a call has failed, {"drained": true} when the GPU has
ended all that was enqueued before. Then it waits for the end of its standard input, so that whoever started it can look at the GPU.
"""
import argparse
import ctypes
import json
import os
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples"))
import common

CALLS = 20


class Calls(ctypes.Structure):  # struct dynamicclCalls of dynamiccl.h
    _fields_ = [("name", ctypes.c_char_p), ("calls", ctypes.c_ulonglong), ("kernels", ctypes.c_ulonglong)]


def kernels():
    """How many AllReduces our kernels have run; None without the library."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "dynamicclIntercepted"):
        return None
    out = (Calls * 128)()
    library.dynamicclIntercepted.restype = ctypes.c_size_t
    library.dynamicclIntercepted.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return sum(c.kernels for c in out[:min(128, library.dynamicclIntercepted(out, 128))] if c.name == b"ncclAllReduce")


def say(**fields):
    print(json.dumps(fields), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=("calls", "graph", "watchdog"), default="calls", help="what goes round; watchdog: calls, and PyTorch's own may end the process")
    parser.add_argument("--kib", type=int, default=64)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: gloo, to try it")
    args = parser.parse_args()
    device = common.join(args.device)
    x = torch.zeros(args.kib * 512, dtype=torch.bfloat16, device=device)  # their sums stay

    def batch():
        for _ in range(CALLS):
            dist.all_reduce(x)

    for _ in range(10):  # the first calls of a communicator are NCCL's default whatever is known
        batch()
    common.synchronize(device)
    step, before = batch, kernels()
    if args.mode == "graph":
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            batch()

        def step():  # replays ask nobody: that something is wrong the next plain call says
            for _ in range(5):
                graph.replay()
            dist.all_reduce(x)

    step()
    common.synchronize(device)
    after = kernels()
    say(ready=True, kernels=None if after is None else after - before, **common.describe(device))
    try:
        while True:
            step()
            common.synchronize(device)
    except Exception as error:  # whatever PyTorch makes of NCCL's error
        say(error=" ".join(str(error).split())[:400], type=type(error).__name__)
    try:
        common.synchronize(device)
        say(drained=True)
    except Exception as error:
        say(drained=False, why=str(error)[:400])
    sys.stdin.read()
    os._exit(3)  # without what a group that lost a rank would wait for


if __name__ == "__main__":
    main()
