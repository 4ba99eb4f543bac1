#!/usr/bin/env python3
"""All-reduce, residual and RMSNorm of a tensor-parallel decode step in one kernel, as an operator of PyTorch.

  bin/dynamiccld run -- torchrun --nproc-per-node 4 nccltuner/gputest/fused_norm.py --hidden 8192 --tokens 1,8,32

`torch.ops.dynamiccl.all_reduce_add_rms_norm(x, residual, weight, epsilon)` adds up x over the ranks of the default group,
adds that to residual in place and gives the normalised sum times weight. It calls libdynamiccl.so, which has to be
preloaded (dynamiccl.h); where that, its kernels or room for the size is missing it is all_reduce, add and norm, one by one.

Not known, for this has never run, only been compiled: whether ProcessGroupNCCL._comm_ptr() is in your PyTorch and gives the
communicator that all_reduce uses; whether the library's kernels are bound by the first all_reduce, which they must be before
the operator looks for them; what it gains on a GPU. A communicator that is not blocking never has kernels.
"""
import argparse
import ctypes
import os
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples"))
import common

NCCL_TYPES = {torch.float16: 6, torch.float32: 7, torch.bfloat16: 9}
INVALID_ARGUMENT = 4  # this type or size cannot be done, on no rank


class Kernel:
    """The library's function and the communicator; ready is the same on all ranks."""

    def __init__(self, device):
        self.function, self.comm = None, 0
        library = ctypes.CDLL(None)  # what is preloaded is found like the program's own functions
        have = 0
        if hasattr(library, "dynamicclVersion") and library.dynamicclVersion() >= 1:
            p, z = ctypes.c_void_p, ctypes.c_size_t
            self.function = library.dynamicclAllReduceAddRmsNorm
            self.function.argtypes = [p, p, p, p, z, z, ctypes.c_float, ctypes.c_int, p, p]
            library.dynamicclHasKernels.argtypes = [p]
            dist.all_reduce(torch.zeros(1, device=device))  # makes the communicator
            self.comm = comm_pointer(device)
            have = library.dynamicclHasKernels(self.comm) if self.comm else 0
        # A rank without kernels would leave the others waiting in theirs: all or none.
        everyone = torch.tensor([have], dtype=torch.int32, device=device)
        dist.all_reduce(everyone, op=dist.ReduceOp.MIN)
        self.ready = bool(everyone.item())


def comm_pointer(device):
    """The ncclComm_t of the default group, 0 where this PyTorch does not tell."""
    try:
        return dist.distributed_c10d._get_default_group()._get_backend(device)._comm_ptr()
    except (AttributeError, RuntimeError):
        return 0


_kernel = None


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
    plain = x.is_contiguous() and residual.is_contiguous() and weight.is_contiguous() and x.dtype == residual.dtype == weight.dtype
    if _kernel is None or not _kernel.ready or not plain or x.dtype not in NCCL_TYPES or x.numel() == 0:
        return one_by_one(x, residual, weight, epsilon)
    width = x.shape[-1]
    out = torch.empty_like(x)
    stream = torch.cuda.current_stream(x.device).cuda_stream
    result = _kernel.function(x.data_ptr(), residual.data_ptr(), weight.data_ptr(), out.data_ptr(), x.numel() // width, width, epsilon,
                              NCCL_TYPES[x.dtype], _kernel.comm, stream)
    if result == INVALID_ARGUMENT:
        return one_by_one(x, residual, weight, epsilon)
    if result != 0:
        raise RuntimeError(f"dynamicclAllReduceAddRmsNorm: ncclResult_t {result}")
    return out


@all_reduce_add_rms_norm.register_fake
def _(x, residual, weight, epsilon):
    return torch.empty_like(x)


def measure(device, step, calls):
    """Median microseconds of a call, eager, on the slowest rank."""
    watch = common.Stopwatch(device)
    for _ in range(calls + 1):
        watch.mark()
        step()
    return common.quartiles(watch.intervals_us()[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=8192)
    parser.add_argument("--tokens", default="1,8,32")
    parser.add_argument("--calls", type=int, default=200)
    options = parser.parse_args()
    device = common.join()
    ready = prepare(device)
    for tokens in map(int, options.tokens.split(",")):
        torch.manual_seed(tokens * 1000 + dist.get_rank())
        x = torch.randn(tokens, options.hidden, device=device, dtype=torch.bfloat16)
        torch.manual_seed(tokens)  # residual and weight are the same on all ranks
        residual = torch.randn_like(x)
        weight = torch.randn(options.hidden, device=device, dtype=torch.bfloat16)
        ours, theirs = residual.clone(), residual.clone()
        out = torch.ops.dynamiccl.all_reduce_add_rms_norm(x, ours, weight, 1e-6)
        want = one_by_one(x, theirs, weight, 1e-6)
        # NCCL adds up in another order, so a last bit may differ, and from there on any.
        apart = (out.float() - want.float()).abs().max().item()
        same = common.same_on_all_ranks(common.checksum(out))
        fused = measure(device, lambda: torch.ops.dynamiccl.all_reduce_add_rms_norm(x, ours, weight, 1e-6), options.calls)
        split = measure(device, lambda: one_by_one(x, theirs, weight, 1e-6), options.calls)
        common.show(figure="fused norm", kernels=ready, tokens=tokens, hidden=options.hidden, largest_difference=apart, same_on_all_ranks=same,
                    fused=fused, one_by_one=split, **common.describe(device))
    common.leave()


if __name__ == "__main__":
    main()
