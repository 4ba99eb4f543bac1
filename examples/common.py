"""What the examples share: joining the group, timing on the device, checking and printing."""
import ctypes
import json
import os
import statistics
import time
from datetime import timedelta

import torch
import torch.distributed as dist


def join(device_type="cuda"):
    """This rank's device, after it has joined the group that torchrun describes."""
    if device_type == "cpu":
        dist.init_process_group("gloo", timeout=timedelta(minutes=2))
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device, timeout=timedelta(minutes=2))
    return device


def nccl_version():
    """Of the library that is loaded: torch.cuda.nccl.version() is the one that PyTorch was built with."""
    code = ctypes.c_int()
    ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(code))
    return f"{code.value // 10000}.{code.value // 100 % 100}.{code.value % 100}"


def describe(device):
    """What a result was measured on."""
    out = {"gpus": dist.get_world_size(), "torch": torch.__version__}
    if device.type == "cuda":
        out |= {"gpu": torch.cuda.get_device_name(device), "nccl": nccl_version()}
    return out


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def of_all(numbers):
    """Every rank's numbers, a row for each."""
    everyone = torch.empty(dist.get_world_size() * numbers.numel(), dtype=numbers.dtype, device=numbers.device)
    dist.all_gather_into_tensor(everyone, numbers)
    return everyone.view(-1, numbers.numel())


class Stopwatch:
    """Times intervals on the device: CUDA events, which do not make the host wait; the host's clock without a GPU."""

    def __init__(self, device):
        self.device, self.marks = device, []

    def mark(self):
        if self.device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(time.perf_counter())

    def own_us(self):
        """Microseconds from each mark to the next, [marks - 1], on this rank."""
        synchronize(self.device)
        if self.device.type == "cuda":
            return [a.elapsed_time(b) * 1e3 for a, b in zip(self.marks, self.marks[1:])]
        return [(b - a) * 1e6 for a, b in zip(self.marks, self.marks[1:])]

    def intervals_us(self):
        """The same; for each interval the largest of all ranks."""
        slowest = torch.tensor(self.own_us(), dtype=torch.float64, device=self.device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return slowest.tolist()


def captured(call, calls):
    """A graph of so many calls."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    # thread_local: NCCL's watchdog thread of PyTorch asks for events meanwhile.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(calls):
            call()
    return graph


def end(graphs, device):
    """Before the group: NCCL keeps a communicator for as long as a graph uses it."""
    for graph in graphs:
        synchronize(device)
        graph.reset()


def quartiles(values_us):
    low, middle, high = statistics.quantiles(values_us, n=4, method="inclusive")
    return {"median_us": round(middle, 2), "p25_us": round(low, 2), "p75_us": round(high, 2)}


def checksum(tensor):
    """Two numbers [2] of the bits of a tensor: the sum, and the sum weighted by position, so that a swap shows too."""
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    bits = tensor.detach().contiguous().view(whole).flatten().to(torch.int64)
    weights = torch.arange(bits.numel(), device=bits.device) % 65521 + 1  # a prime: no layout repeats with it
    return torch.stack((bits.sum(), (bits * weights).sum()))


def same_on_all_ranks(numbers):
    """Whether every rank holds the same numbers."""
    return bool((of_all(numbers) == numbers).all())


def show(**fields):
    if dist.get_rank() == 0:
        print(json.dumps(fields), flush=True)


def leave():
    dist.barrier()
    dist.destroy_process_group()
