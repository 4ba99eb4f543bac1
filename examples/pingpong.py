#!/usr/bin/env python3
"""One message there and back, as between two stages of a pipeline that wait for each other: how long is it on its way?

  torchrun --nproc-per-node 2 examples/pingpong.py --kib 64,256,1024

median_us is half of what there and back take, between two ranks. Nothing else is on its way meanwhile.
"""
import argparse
import sys

import torch
import torch.distributed as dist

import common


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kib", default="16,64,128,256,512,1024,4096", help="sizes of messages (16,64,128,256,512,1024,4096)")
    parser.add_argument("--steps", type=int, default=400, help="there and back, each timed (400)")
    parser.add_argument("--warmup", type=int, default=100, help="before them (100)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: gloo, to try it")
    args = parser.parse_args()
    args.kib = [int(x) for x in args.kib.split(",")]
    if args.steps < 2 or args.warmup < 1 or min(args.kib) < 1:
        parser.error("quartiles need --steps of at least 2, --warmup and --kib at least 1")
    return args


def there_and_back(message):
    """Rank 0's message, to which rank 1 adds one."""
    if dist.get_rank() == 0:
        dist.send(message, 1)
        dist.recv(message, 1)
    else:
        dist.recv(message, 0)
        message += 1
        dist.send(message, 0)


def main():
    args = parse()
    device = common.join(args.device)
    failed = 0
    if dist.get_world_size() != 2:
        sys.exit(f"{dist.get_world_size()} ranks; a message goes between two: --nproc-per-node 2")
    for kib in args.kib:
        message = torch.zeros(kib * 256, dtype=torch.int32, device=device)
        watch = common.Stopwatch(device)
        for step in range(args.warmup + args.steps):
            if step == args.warmup:
                common.synchronize(device)
                watch.mark()
            there_and_back(message)
            if step >= args.warmup:
                watch.mark()
        halves = [us / 2 for us in watch.intervals_us()]
        wrong = (message != args.warmup + args.steps).sum() if dist.get_rank() == 0 else torch.zeros((), dtype=torch.int64, device=device)
        dist.all_reduce(wrong)
        failed |= int(wrong) != 0
        common.show(program="pingpong", **common.describe(device), kib=kib, steps=args.steps, warmup=args.warmup, **common.quartiles(halves), wrong=int(wrong))
    common.leave()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
