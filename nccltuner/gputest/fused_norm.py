#!/usr/bin/env python3
"""All-reduce, residual and RMSNorm of a tensor-parallel decode step in one kernel, as an operator of PyTorch.

  bin/dynamiccld run -- torchrun --nproc-per-node 4 nccltuner/gputest/fused_norm.py --hidden 8192 --tokens 1,8,32

`torch.ops.dynamiccl.all_reduce_add_rms_norm(x, residual, weight, epsilon)` adds up x over the ranks of the default group,
adds that to residual in place and gives the normalised sum times weight. It calls libdynamiccl.so, which has to be
preloaded (dynamiccl.h); where that, its kernels or room for the size is missing it is all_reduce, add and norm, one by one.

Lines are of the operator, or with --how one-by-one (or FUSED_NORM=one-by-one) of the separate steps: plain calls, and CUDA graphs of 20;
program_fused.sh compares them. Output and residual are held against float64, and have to be the same on all ranks.

It has run with PyTorch 2.11 on two GPUs (docs/results/nvlink.md). ProcessGroupNCCL._comm_ptr() has to be in your PyTorch and give the
communicator that all_reduce uses. "kernels": false says that they were not found, and missing_kernels is 1 where the operator did not run
them. A communicator that is not blocking never has kernels.
"""
import argparse
import ctypes
import os
import statistics
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples"))
import common

NCCL_TYPES = {torch.float16: 6, torch.float32: 7, torch.bfloat16: 9}
INVALID_ARGUMENT = 4  # this type or size cannot be done, on no rank
CALLS = 20  # of a batch and of a graph
EPSILON = 1e-6


class Kernel:
    """The library's function and the communicator; ready is the same on all ranks."""

    def __init__(self, device):
        self.function, self.comm = None, 0
        library = ctypes.CDLL(None)  # what is preloaded is found like the program's own functions
        if device.type == "cuda" and hasattr(library, "dynamicclVersion") and library.dynamicclVersion() >= 1:
            p, z = ctypes.c_void_p, ctypes.c_size_t
            self.function = library.dynamicclAllReduceAddRmsNorm
            self.function.argtypes = [p, p, p, p, z, z, ctypes.c_float, ctypes.c_int, p, p]
            library.dynamicclHasKernels.argtypes = [p]
        # A rank without kernels would leave the others waiting in theirs: all or none. They may come with the first calls.
        have, self.ready = 0, False
        for _ in range(5):
            everyone = torch.tensor([have], dtype=torch.int32, device=device)
            dist.all_reduce(everyone, op=dist.ReduceOp.MIN)
            self.ready = bool(everyone.item())
            if self.ready:
                break
            self.comm = comm_pointer(device)
            have = library.dynamicclHasKernels(self.comm) if self.function and self.comm else 0


def comm_pointer(device):
    """The ncclComm_t of the default group, 0 where this PyTorch does not tell."""
    try:
        return dist.distributed_c10d._get_default_group()._get_backend(device)._comm_ptr()
    except (AttributeError, RuntimeError):
        return 0


_kernel = None
_without = 0  # calls of the operator that went one by one


def prepare(device):
    """On all ranks, once, before the operator and before any graph is captured: it talks to the other ranks."""
    global _kernel
    _kernel = Kernel(device)
    return _kernel.ready


def one_by_one(x, residual, weight, epsilon):
    total = x.clone()
    dist.all_reduce(total)
    residual.add_(total)
    wide = residual.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)).to(x.dtype) * weight


@torch.library.custom_op("dynamiccl::all_reduce_add_rms_norm", mutates_args=("residual",))
def all_reduce_add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    # All that decides here is the same on all ranks, if their shapes and layouts are.
    global _without
    plain = x.is_contiguous() and residual.is_contiguous() and weight.is_contiguous() and x.dtype == residual.dtype == weight.dtype
    if _kernel is None or not _kernel.ready or not plain or x.dtype not in NCCL_TYPES or x.numel() == 0:
        _without += 1
        return one_by_one(x, residual, weight, epsilon)
    width = x.shape[-1]
    out = torch.empty_like(x)
    stream = torch.cuda.current_stream(x.device).cuda_stream
    result = _kernel.function(x.data_ptr(), residual.data_ptr(), weight.data_ptr(), out.data_ptr(), x.numel() // width, width, epsilon,
                              NCCL_TYPES[x.dtype], _kernel.comm, stream)
    if result == INVALID_ARGUMENT:
        _without += 1
        return one_by_one(x, residual, weight, epsilon)
    if result != 0:
        raise RuntimeError(f"dynamicclAllReduceAddRmsNorm: ncclResult_t {result}")
    return out


@all_reduce_add_rms_norm.register_fake
def _(x, residual, weight, epsilon):
    return torch.empty_like(x)


class Layer:
    """What a step of one size works on; call() is one, and its result stays in out."""

    def __init__(self, how, tokens, hidden, device):
        self.run = torch.ops.dynamiccl.all_reduce_add_rms_norm if how == "fused" else one_by_one
        torch.manual_seed(tokens * 1000 + dist.get_rank())
        self.x = torch.randn(tokens, hidden, device=device, dtype=torch.bfloat16)
        torch.manual_seed(tokens)  # residual and weight are the same on all ranks
        self.before, self.weight = torch.randn_like(self.x), torch.randn(hidden, device=device, dtype=torch.bfloat16)
        self.residual, self.out = self.before.clone(), None

    def call(self):
        self.out = self.run(self.x, self.residual, self.weight, EPSILON)

    def wrong(self, once):
        """Elements of all ranks that are wrong after one call; how far the output is from float64, over the output's mean."""
        self.residual.copy_(self.before)
        once()
        ranks = dist.get_world_size()
        everyone = torch.empty(ranks * self.x.shape[0], self.x.shape[1], dtype=self.x.dtype, device=self.x.device)
        dist.all_gather_into_tensor(everyone, self.x)
        parts = everyone.double().view(ranks, *self.x.shape)
        residual = parts.sum(0) + self.before.double()
        scale = torch.rsqrt(residual.square().mean(-1, keepdim=True) + EPSILON)
        out = residual * scale * self.weight.double()
        # bfloat16 keeps 8 bits: each sum on the way, of at most these sizes, may be off by half of its last one, and so may the last two products
        slack = (ranks + 1) * 2.0 ** -8 * (parts.abs().sum(0) + self.before.double().abs())
        bad = ((self.residual.double() - residual).abs() > slack).sum()
        bad += ((self.out.double() - out).abs() > slack * scale * self.weight.double().abs() + 2.0 ** -7 * out.abs()).sum()
        for mine in (self.out, self.residual):
            bad += 0 if common.same_on_all_ranks(common.checksum(mine)) else 1
        dist.all_reduce(bad)
        return int(bad.item()), ((self.out.double() - out).abs().max() / out.abs().mean()).item()


def captured(layer, calls):
    """A graph of so many calls, and what does the last one again."""
    graph = common.captured(layer.call, calls)
    out = layer.out

    def replay():
        graph.replay()
        layer.out = out

    return graph, replay


def timed(batch, batches, device):
    """Median microseconds of a call, the largest of all ranks."""
    watch = common.Stopwatch(device)
    for _ in range(5):
        batch()
    watch.mark()
    for _ in range(batches):
        batch()
        watch.mark()
    slowest = torch.tensor([statistics.median(watch.own_us()) / CALLS], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return round(slowest.item(), 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=8192)
    parser.add_argument("--tokens", default="1,8,32")
    parser.add_argument("--batches", type=int, default=100, help=f"of {CALLS} calls, or graphs of so many, that are timed (100)")
    parser.add_argument("--how", choices=("fused", "one-by-one"), default=os.environ.get("FUSED_NORM", "fused"), help="[FUSED_NORM] (fused)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: gloo and no graphs, to try it")
    options = parser.parse_args()
    device = common.join(options.device)
    ready, failed = prepare(device), False
    for tokens in map(int, options.tokens.split(",")):
        layer = Layer(options.how, tokens, options.hidden, device)
        for _ in range(30):  # the first calls of a communicator are NCCL's default whatever is known
            layer.call()
        for mode in ("calls", "graph") if device.type == "cuda" else ("calls",):
            graphs, once, batch = [], layer.call, lambda: [layer.call() for _ in range(CALLS)]
            if mode == "graph":
                graphs, (once, batch) = zip(*(captured(layer, calls) for calls in (1, CALLS)))
            wrong, off = layer.wrong(once)
            failed |= wrong != 0
            common.show(program="fused norm", how=options.how, kernels=ready, tokens=tokens, hidden=options.hidden, graph=bool(graphs),
                        median_us=timed(batch, options.batches, device), wrong=wrong, missing_kernels=int(_without > 0), off_float64=round(off, 5), **common.describe(device))
            common.end(graphs, device)
    common.leave()
    return int(failed)


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
