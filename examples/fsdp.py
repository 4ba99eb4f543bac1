#!/usr/bin/env python3
"""Fully sharded training (FSDP2) of a transformer (1.3B parameters, computed in bf16) on random tokens: how long is a step?

  torchrun --nproc-per-node 4 examples/fsdp.py --steps 30 --warmup 10
"""
import argparse
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import common
import training
import transformer

REDUCE = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    transformer.shape_flags(parser, layers=24, hidden=2048, heads=16, sequence=1024, batch=4)
    training.flags(parser)
    parser.add_argument("--reduce", choices=REDUCE, default="float32", help="type in which gradients are reduced (float32)")
    return parser.parse_args()


def shard(model, args):
    """Blocks one by one, so that the next one's parameters are gathered while this one computes."""
    mesh = init_device_mesh(args.device, (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=REDUCE[args.reduce])
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def same(model):
    """All ranks gather the same parameters, and these are the shards that the ranks hold."""
    whole, shards = [], []
    for p in model.parameters():
        whole.append(common.checksum(p.full_tensor()))
        shards.append(common.checksum(p.to_local())[0])  # a sum of shards is the sum of the whole
    whole, shards = torch.stack(whole), torch.stack(shards)
    dist.all_reduce(shards)
    return common.same_on_all_ranks(whole.flatten()) and bool((whole[:, 0] == shards).all())


def main():
    args = parse()
    device = common.join(args.device)
    model = transformer.build(args, device, torch.float32)
    count = sum(p.numel() for p in model.parameters())
    model = shard(model, args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")

    def step(tokens):
        loss = model(tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    times, loss = training.train(args, device, step)
    more = {"reduce": args.reduce}
    if args.check:
        more["same"] = same(model)
    failed = training.show("fsdp", args, device, times, loss, count, **more)
    common.leave()
    return failed


if __name__ == "__main__":
    sys.exit(main())
