#!/usr/bin/env python3
"""Collectives beside matrix products, as training has them: how long is a step?

  torchrun --nproc-per-node 4 examples/overlap.py --mib 4,16,64 --products 2,4,12

A step is --blocks blocks; each begins a collective (all-reduce and all-gather by turns) on NCCL's stream, multiplies matrices
beside it, and waits for both. A collective with many channels is done sooner and takes more of the GPU from the products. Before,
both are timed alone, to show what hides what: a step of which communication is alone_us and compute compute_us takes
their sum where nothing overlaps and the greater one where all does. --no-overlap waits for each collective at once.
"""
import argparse
import sys

import torch
import torch.distributed as dist

import common

DTYPE = torch.bfloat16


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", default="4,16,64", help="sizes of the collectives' buffers (4,16,64)")
    parser.add_argument("--products", default="2,4,12", help="matrix products beside each, one number a size (2,4,12)")
    parser.add_argument("--rows", type=int, default=2048, help="of the square matrices (2048)")
    parser.add_argument("--blocks", type=int, default=8, help="collectives of a step (8)")
    parser.add_argument("--steps", type=int, default=200, help="steps that are timed (200)")
    parser.add_argument("--warmup", type=int, default=600, help="steps before them, in which a tuner may learn (600)")
    parser.add_argument("--no-overlap", action="store_true", help="wait for each collective before the products")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: gloo, to try tiny shapes")
    args = parser.parse_args()
    args.mib = [float(x) for x in args.mib.split(",")]
    args.products = [int(x) for x in args.products.split(",")]
    if len(args.mib) != len(args.products):
        parser.error(f"{len(args.mib)} sizes and {len(args.products)} numbers of products; give one for each size")
    if args.steps < 2 or args.warmup < 1:
        parser.error("quartiles need --steps of at least 2, and --warmup at least 1")
    return args


class Block:
    """What a step does again and again for one size."""

    def __init__(self, args, mib, products, device):
        ranks = dist.get_world_size()
        count = max(1, int(mib * (1 << 20)) // DTYPE.itemsize // ranks)
        self.products, self.overlap = products, not args.no_overlap
        self.part = torch.zeros(count, dtype=DTYPE, device=device)  # sums of zeros stay zeros, however many steps there are
        self.whole = torch.zeros(count * ranks, dtype=DTYPE, device=device)
        self.summed = torch.zeros(count * ranks, dtype=DTYPE, device=device)
        self.left, self.right = (torch.randn(args.rows, args.rows, dtype=DTYPE, device=device) for _ in range(2))
        self.out = torch.empty_like(self.left)

    def begin(self, number):
        if number % 2 == 0:
            return dist.all_reduce(self.summed, async_op=True)
        return dist.all_gather_into_tensor(self.whole, self.part, async_op=True)

    def compute(self):
        for _ in range(self.products):
            torch.matmul(self.left, self.right, out=self.out)

    def run(self, number, communicate=True, compute=True):
        work = self.begin(number) if communicate else None
        if work and not self.overlap:
            work.wait()
        if compute:
            self.compute()
        if work and self.overlap:
            work.wait()  # the device waits, the host goes on

    def wrong(self):
        """How many elements of a collective of each kind are not what they must be."""
        ranks = dist.get_world_size()
        self.summed.fill_(dist.get_rank() + 1)
        self.part.fill_(dist.get_rank() + 1)
        for number in range(2):
            self.run(number, compute=False)
        gathered = torch.arange(1, ranks + 1, device=self.whole.device, dtype=DTYPE).repeat_interleave(self.part.numel())
        bad = (self.summed != ranks * (ranks + 1) // 2).sum() + (self.whole != gathered).sum()
        dist.all_reduce(bad)
        return int(bad)


def timed(args, device, block, warmup, steps, **parts):
    watch = common.Stopwatch(device)
    for i in range(warmup + steps):
        if i == warmup:
            common.synchronize(device)
            watch.mark()
        for number in range(args.blocks):
            block.run(number, **parts)
        if i >= warmup:
            watch.mark()
    return common.quartiles(watch.intervals_us())


def main():
    args = parse()
    device = common.join(args.device)
    failed = 0
    for mib, products in zip(args.mib, args.products):
        block = Block(args, mib, products, device)
        # First, so that what a tuner has found at the end is for the step and not for these.
        compute = timed(args, device, block, 5, 20, communicate=False)["median_us"]
        alone = timed(args, device, block, 5, 20, compute=False)["median_us"]
        step = timed(args, device, block, args.warmup, args.steps)
        wrong = block.wrong()
        failed |= wrong != 0
        common.show(program="overlap", **common.describe(device), mib=mib, products=products, rows=args.rows, blocks=args.blocks,
                    overlap=not args.no_overlap, steps=args.steps, warmup=args.warmup, **step, compute_us=compute, alone_us=alone, wrong=wrong)
    common.leave()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
