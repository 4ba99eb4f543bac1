#!/usr/bin/env python3
"""AllReduce of PyTorch's symmetric memory, one shot and two, beside dist.all_reduce, in bfloat16, as kernels/bench/lsa.cu times ours.

  torchrun --standalone --nproc-per-node 4 nccltuner/gputest/symm_mem.py >> docs/figures/FILE.jsonl

A line for each size and operator: CUDA graphs of 20 calls (4 from 32 MiB on), the median of their replays, the largest over ranks. Before, and of
operators that do not work in place afterwards too, every element is compared. What an operator or this PyTorch refuses is a line
with the reason. No operator here uses NVLink multicast, and nobody is to set it up.
"""
import argparse
import collections
import datetime
import os
import statistics
import subprocess
import sys
import time

# Read by NCCL and PyTorch when they start.
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")

import torch
import torch.distributed as dist

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "examples"))
import common

CALLS, LARGE_CALLS, LARGE_BYTES = 20, 4, 32 << 20  # in a graph; calls so large take a millisecond, and some make a result each
WARM_S = 2
SIZES = "1024,16384,65536,262144,1048576,4194304,16777216,67108864,268435456"


def output(*words):
    """What a command prints, or "" where it is missing or fails."""
    try:
        return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def describe():
    """Where this is measured, in every line; the names are those of kernels/bench/run.sh."""
    rows = [row.split(", ") for row in output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()]
    names = collections.Counter(row[0] for row in rows)
    return {"gpus": ";".join(f"{n} {name}" for name, n in names.items()), "driver": rows[0][-1] if rows else "", "torch": torch.__version__,
            "nccl": common.nccl_version(), "commit": os.environ.get("COMMIT") or output("git", "describe", "--always", "--dirty") or "unknown",
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}


class Operator:
    """run(x, out) enqueues an AllReduce of x and gives the tensor that it leaves the sum in."""

    def __init__(self, name, run, in_place=False):
        self.name, self.run, self.in_place = name, run, in_place


def dist_all_reduce(x, out):
    dist.all_reduce(x)
    return x


def symmetric_operators(group):
    ops = torch.ops.symm_mem
    return [Operator("symm_mem.one_shot_all_reduce", lambda x, out: ops.one_shot_all_reduce(x, "sum", group)),
            Operator("symm_mem.one_shot_all_reduce_out", lambda x, out: ops.one_shot_all_reduce_out(x, "sum", group, out)),
            Operator("symm_mem.two_shot_all_reduce_", lambda x, out: ops.two_shot_all_reduce_(x, "sum", group), in_place=True)]


def symmetric_buffer(count, device):
    """A tensor that all ranks have opened of each other; on a failure the reason."""
    try:
        import torch.distributed._symmetric_memory as symm_mem

        buffer = symm_mem.empty(count, dtype=torch.bfloat16, device=device)
        symm_mem.rendezvous(buffer, dist.group.WORLD.group_name)
        return buffer, ""
    except Exception as error:  # whatever this PyTorch or this machine has against it
        return None, first_line(error)


def first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0]


def agreed(fine, device):
    """Whether all ranks are fine: one alone would leave the others waiting in a kernel."""
    everyone = torch.tensor([int(fine)], device=device)
    dist.all_reduce(everyone, op=dist.ReduceOp.MIN)
    return bool(everyone.item())


def values(count, rank, device):
    """Whole numbers from 0 to 3: their sums are exact in bfloat16."""
    index = torch.arange(count, device=device)
    return ((index * 5 + rank * 3) % 11 % 4).to(torch.bfloat16)


def wrong_elements(got, ranks, device):
    """Of all ranks."""
    want = sum(values(got.numel(), r, device) for r in range(ranks))
    wrong = (got != want).sum()
    dist.all_reduce(wrong)
    return int(wrong.item())


def warm(device):
    """Clocks rise with load, and fall within seconds without any."""
    a = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
    until = time.monotonic() + WARM_S
    while time.monotonic() < until:
        for _ in range(20):
            a @ a
        torch.cuda.synchronize()
    dist.barrier()


def captured(call, calls):
    """A graph of so many calls; a few on the same stream first, so that what happens once is not captured."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    graph, result = torch.cuda.CUDAGraph(), None
    # thread_local: NCCL's watchdog thread of PyTorch asks for events meanwhile.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(calls):
            result = call()
    return graph, result


def replayed_us(graph, calls, replays, device):
    """Microseconds of a call: this rank's median, the largest over ranks."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(min(10, replays // 5)):
        graph.replay()
    own = []
    for _ in range(replays):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        own.append(begin.elapsed_time(end) * 1e3 / calls)
    slowest = torch.tensor([statistics.median(own)], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return round(slowest.item(), 2)


def measure(operator, x, replays, device):
    """Fields of one line."""
    ranks, mine = dist.get_world_size(), values(x.numel(), dist.get_rank(), device)
    out = torch.empty_like(x)
    x.copy_(mine)
    torch.cuda.synchronize()
    dist.barrier()
    try:
        result, why = operator.run(x, out), ""
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        result, why = None, first_line(error)
    if not agreed(result is not None, device):
        return {"refused": why or "another rank refused"}
    wrong = wrong_elements(result, ranks, device)
    # In place, sums of sums soon are infinite; it is as much to move and to add.
    calls = LARGE_CALLS if x.nbytes >= LARGE_BYTES else CALLS
    graph, result = captured(lambda: operator.run(x, out), calls)
    us = replayed_us(graph, calls, max(replays // 5, 5) if calls < CALLS else replays, device)
    if not operator.in_place:
        wrong += wrong_elements(result, ranks, device)
    graph.reset()  # NCCL keeps a communicator for as long as a graph uses it
    return {"wrong": wrong, "us": us}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=SIZES, metavar="BYTES,...", help="of the buffer (1 KiB to 256 MiB)")
    parser.add_argument("--replays", type=int, default=100, help="of each graph (100), a fifth from 32 MiB on")
    args = parser.parse_args()
    sizes = [int(size) for size in args.sizes.split(",")]
    device = common.join()
    ranks = dist.get_world_size()
    head = {"figure": "symm_mem time", "ranks": ranks, "collective": "AllReduce"} | describe()
    plain = torch.empty(max(sizes) // 2, dtype=torch.bfloat16, device=device)
    dist.all_reduce(plain)  # makes the communicator
    buffer, why = symmetric_buffer(max(sizes) // 2, device)
    symmetric = agreed(buffer is not None, device)
    operators = [(Operator("dist.all_reduce", dist_all_reduce, in_place=True), plain)]
    operators += [(operator, buffer) for operator in symmetric_operators(dist.group.WORLD.group_name)]
    right = True
    warm(device)
    for size in sizes:
        for operator, memory in operators:
            if memory is plain or symmetric:
                fields = measure(operator, memory[:size // 2], args.replays, device)
            else:
                fields = {"refused": why or "another rank has no symmetric memory"}
            right = right and not fields.get("wrong")
            common.show(**head, bytes=size, path=operator.name, **fields)
    torch.cuda.synchronize()
    common.leave()
    return 0 if right else 1


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
