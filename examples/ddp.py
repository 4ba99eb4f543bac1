#!/usr/bin/env python3
"""Data-parallel training of a transformer (350M parameters, bf16) on random tokens: how long is a step?

  torchrun --nproc-per-node 4 examples/ddp.py --steps 30 --warmup 10

--no-overlap all-reduces the same gradients in pieces of the same size, but after the backward pass: the communication of
DDP without computation beside it.
"""
import argparse
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import common
import training
import transformer


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    transformer.shape_flags(parser, layers=24, hidden=1024, heads=16, sequence=1024, batch=8)
    training.flags(parser)
    parser.add_argument("--bucket-mib", type=int, default=25, help="size of a gradient bucket (25, DDP's own)")
    parser.add_argument("--no-overlap", action="store_true", help="communicate after the backward pass")
    return parser.parse_args()


class AfterBackward:
    """Gradients in one buffer, all-reduced in buckets once all of them are there."""

    def __init__(self, model, bucket_bytes):
        parameters = list(model.parameters())
        self.whole = torch.zeros(sum(p.numel() for p in parameters), dtype=parameters[0].dtype, device=parameters[0].device)
        self.buckets = self.whole.split(bucket_bytes // self.whole.element_size())
        for p, grad in zip(parameters, self.whole.split([p.numel() for p in parameters])):
            p.grad = grad.view_as(p)

    def reduce(self):
        for bucket in self.buckets:
            dist.all_reduce(bucket)
        self.whole /= dist.get_world_size()


def main():
    args = parse()
    device = common.join(args.device)
    model = transformer.build(args, device, torch.bfloat16)
    count = sum(p.numel() for p in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    if args.no_overlap:
        after, forward = AfterBackward(model, args.bucket_mib << 20), model
    else:
        after, forward = None, DistributedDataParallel(model, bucket_cap_mb=args.bucket_mib, gradient_as_bucket_view=True)

    def step(tokens):
        loss = forward(tokens)
        loss.backward()
        if after:
            after.reduce()
        optimizer.step()
        optimizer.zero_grad(set_to_none=after is None)
        return loss

    times, loss = training.train(args, device, step)
    more = {"overlap": not args.no_overlap}
    if args.check:
        more["same"] = common.same_on_all_ranks(torch.cat([common.checksum(p) for p in model.parameters()]))
    failed = training.show("ddp", args, device, times, loss, count, **more)
    common.leave()
    return failed


if __name__ == "__main__":
    sys.exit(main())
