#!/usr/bin/env python3
"""Collectives by size: how long is a call, one behind the other, and as one of many in a CUDA graph?

  torchrun --nproc-per-node 2 examples/collectives.py --collectives AllReduce --kib 1,64,1024

bfloat16, in place where it is an AllReduce; sizes are of the larger buffer. median_us is a call's share of a batch, or of the
replay of a graph of as many: this rank's median, the largest of all ranks. Every element is compared before, of plain
calls and of a captured one. --by ctypes calls NCCL's functions in place of PyTorch's, on a communicator of its own.
"""
import argparse
import statistics
import sys

import torch
import torch.distributed as dist

import common
import looked_up

DTYPE = torch.bfloat16


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collectives", default="AllReduce,AllGather,ReduceScatter", help=f"some of {', '.join(COLLECTIVES)} (all)")
    parser.add_argument("--kib", default="1,4,16,64,256,1024,4096", help="sizes (1,4,16,64,256,1024,4096)")
    parser.add_argument("--calls", type=int, default=20, help="of a batch or a graph (20)")
    parser.add_argument("--batches", type=int, default=100, help="that are timed, of each kind (100)")
    parser.add_argument("--warmup", type=int, default=60, help="calls of a size before anything else (60)")
    parser.add_argument("--modes", default="calls,graph", help="plain calls, graphs or both (calls,graph)")
    parser.add_argument("--by", choices=("torch", "ctypes"), default="torch", help="who calls NCCL: PyTorch, or this program by ctypes (torch)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: gloo and no graphs, to try it")
    args = parser.parse_args()
    args.collectives, args.kib, args.modes = args.collectives.split(","), [int(x) for x in args.kib.split(",")], args.modes.split(",")
    if set(args.collectives) - set(COLLECTIVES) or set(args.modes) - {"calls", "graph"}:
        parser.error(f"--collectives are some of {', '.join(COLLECTIVES)}, --modes of calls, graph")
    if args.batches < 2 or min(args.kib + [args.calls, args.warmup]) < 1:
        parser.error("quartiles need --batches of at least 2, all else at least 1")
    if args.device == "cpu" and args.by == "ctypes":
        parser.error("--by ctypes wants GPUs: NCCL has nothing on a CPU")
    if args.device == "cpu":
        args.modes = ["calls"]
    return args


def values(count, rank, device):
    """Whole numbers from 0 to 3: their sums are exact in bfloat16."""
    return ((torch.arange(count, device=device) * 5 + rank * 3) % 11 % 4).to(DTYPE)


class AllReduce:
    def __init__(self, by, count, device):
        self.by, self.whole = by, torch.empty(count, dtype=DTYPE, device=device)

    def fill(self):
        self.whole.copy_(values(self.whole.numel(), dist.get_rank(), self.whole.device))

    def call(self):
        self.by.all_reduce(self.whole)

    def wrong(self):
        return self.whole != sum(values(self.whole.numel(), r, self.whole.device) for r in range(dist.get_world_size()))


class AllGather(AllReduce):
    def __init__(self, by, count, device):
        super().__init__(by, count, device)
        self.part = torch.empty(count // dist.get_world_size(), dtype=DTYPE, device=device)

    def fill(self):
        self.whole.fill_(-1)
        self.part.copy_(values(self.part.numel(), dist.get_rank(), self.part.device))

    def call(self):
        self.by.all_gather_into_tensor(self.whole, self.part)

    def wrong(self):
        return self.whole != torch.cat([values(self.part.numel(), r, self.part.device) for r in range(dist.get_world_size())])


class ReduceScatter(AllGather):
    def fill(self):
        self.part.fill_(-1)
        AllReduce.fill(self)

    def call(self):
        self.by.reduce_scatter_tensor(self.part, self.whole)

    def wrong(self):
        part, rank = self.part.numel(), dist.get_rank()
        return self.part != sum(values(self.whole.numel(), r, self.part.device)[rank * part:(rank + 1) * part] for r in range(dist.get_world_size()))


COLLECTIVES = {"AllReduce": AllReduce, "AllGather": AllGather, "ReduceScatter": ReduceScatter}


def wrong_elements(collective, run, device):
    """Of all ranks, after run."""
    collective.fill()
    common.synchronize(device)
    dist.barrier()
    run()
    wrong = collective.wrong().sum()
    dist.all_reduce(wrong)
    return int(wrong.item())


def timed(batch, args, device):
    """Quartiles of a call's microseconds."""
    watch = common.Stopwatch(device)
    for _ in range(10):
        batch()
    watch.mark()
    for _ in range(args.batches):
        batch()
        watch.mark()
    low, middle, high = (x / args.calls for x in statistics.quantiles(watch.own_us(), n=4, method="inclusive"))
    slowest = torch.tensor([middle, low, high], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return dict(zip(("median_us", "p25_us", "p75_us"), (round(x, 2) for x in slowest.tolist())))


def main():
    args = parse()
    device = common.join(args.device)
    by = looked_up.Communicator() if args.by == "ctypes" else dist
    failed = False
    for name in args.collectives:
        for kib in args.kib:
            collective = COLLECTIVES[name](by, kib * 512, device)
            head = {"program": "collectives", **common.describe(device), "collective": name, "bytes": kib << 10, "by": args.by, "calls": args.calls}
            for _ in range(args.warmup):
                collective.call()
            for mode in args.modes:
                graphs = []
                if mode == "graph":
                    graphs = [common.captured(collective.call, n) for n in (1, args.calls)]
                    once, batch = graphs[0].replay, graphs[1].replay
                else:
                    once, batch = collective.call, lambda: [collective.call() for _ in range(args.calls)]
                wrong = wrong_elements(collective, once, device)
                failed |= wrong != 0
                common.show(**head, graph=bool(graphs), batches=args.batches, **timed(batch, args, device), wrong=wrong)
                common.end(graphs, device)
    if by is not dist:
        by.end()
    common.leave()
    return int(failed)


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
