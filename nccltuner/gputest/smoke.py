#!/usr/bin/env python3
"""Real NCCL with the plugin and a daemon: results are checked element by element, and every rank's samples must arrive.

torchrun --nproc-per-node N smoke.py SECONDS OUT.jsonl
"""
import ctypes
import json
import os
import sys
import time

import torch
import torch.distributed as dist

from kill_rank import kernels

SIZES = [1 << k for k in range(10, 25, 2)]  # bytes of the whole buffer


def running_nccl():
    """The version of the library that is loaded, which LD_PRELOAD may have replaced."""
    code = ctypes.c_int()
    ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(code))
    return f"{code.value // 10000}.{code.value // 100 % 100}.{code.value % 100}"


def expect(ok, what):
    if not bool(ok):
        print(f"WRONG RESULT on rank {dist.get_rank()}: {what}", flush=True)
        os._exit(17)


def all_reduce(nbytes, step, rank, world):
    x = torch.full((nbytes // 4,), float(rank + step % 7), device="cuda")
    dist.all_reduce(x)
    return lambda: expect((x == sum(r + step % 7 for r in range(world))).all(), f"all_reduce {nbytes}")


def all_gather(nbytes, step, rank, world):
    part = torch.full((nbytes // 4 // world,), float(rank + step % 7), device="cuda")
    out = torch.empty(part.numel() * world, device="cuda")
    dist.all_gather_into_tensor(out, part)
    want = torch.arange(world, device="cuda").repeat_interleave(part.numel()) + step % 7
    return lambda: expect((out == want).all(), f"all_gather {nbytes}")


def reduce_scatter(nbytes, step, rank, world):
    whole = torch.full((nbytes // 4,), float(rank + step % 7), device="cuda")
    out = torch.empty(nbytes // 4 // world, device="cuda")
    dist.reduce_scatter_tensor(out, whole)
    return lambda: expect((out == sum(r + step % 7 for r in range(world))).all(), f"reduce_scatter {nbytes}")


def main():
    seconds, out_path = float(sys.argv[1]), sys.argv[2]
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    stop = torch.zeros(1, device="cuda")
    step, started = 0, time.time()
    while True:
        for f in (all_reduce, all_gather, reduce_scatter):
            for nbytes in SIZES:
                check = f(nbytes, step, rank, world)
                if step % 16 == 0:
                    check()
                step += 1
        if step % 240 == 0:  # all ranks stop at the same call
            stop.fill_(1.0 if time.time() - started > seconds else 0.0)
            dist.all_reduce(stop, op=dist.ReduceOp.MAX)  # no broadcast: from 2.29 on none is sampled after one
            if stop.item() > 0:
                break
    torch.cuda.synchronize()
    ours = kernels()  # NCCL's are right as well
    expect(ours or os.environ.get("SMOKE_KERNELS") != "1", "kernels of ours ran no AllReduce")
    if rank == 0:
        with open(out_path, "a") as f:
            f.write(json.dumps({"figure": "gpu smoke", "gpus": world, "gpu": torch.cuda.get_device_name(0), "nccl": running_nccl(),
                                "collectives": step, "all_reduces_by_ours": ours, "seconds": round(time.time() - started, 1), "wrong_elements": 0}) + "\n")
    dist.destroy_process_group()


main()
