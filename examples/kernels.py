"""What a step's GPU time goes to, by kind of kernel, of PyTorch's profiler. Profiled steps are slower, and are not those that are timed."""
import statistics

OURS = ("oneShot_", "twoShot_", "bulk_", "allReduceAddRmsNorm_", "allGather", "reduceScatter", "allToAll", "broadcast")  # kernels/kernels.cu
KINDS = (("nccl", "communication"), ("gemm", "products"), ("nvjet", "products"), ("cutlass", "products"),
         ("flash", "attention"), ("fmha", "attention"), ("memcpy", "copies"), ("memset", "copies"))


def kind(name):
    if name.startswith(OURS):
        return "communication"
    name = name.lower()
    return next((of for part, of in KINDS if part in name), "others")


def covered(intervals):
    """The length of a union of intervals."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def between(intervals):
    """The median of what lies between one and the next, where they do not overlap."""
    intervals = sorted(intervals)
    return statistics.median([start - end for (_, end), (start, _) in zip(intervals, intervals[1:]) if start >= end] or [0])


def by_kind(events, steps):
    """us a step, of events (name, start us, end us): of each kind, of all that computes, communication that nothing is beside, and nothing at all;
    and us from one that computes to the next (gap_us)."""
    if not events:
        return {}
    times = {}
    for name, start, end in events:
        times[kind(name)] = times.get(kind(name), 0.0) + end - start
    every = [(start, end) for _, start, end in events]
    compute = [(start, end) for name, start, end in events if kind(name) != "communication"]
    whole = max(end for _, end in every) - min(start for start, _ in every)
    times |= {"all_compute": covered(compute), "exposed": covered(every) - covered(compute), "idle": whole - covered(every)}
    return {f"{of}_us": round(us / steps, 1) for of, us in times.items()} | {"gap_us": round(between(compute), 2)}


def profiled(step, steps, synchronize):
    """by_kind of so many steps, of this rank."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(steps):
            step()
        synchronize()
    events = [(e.name, e.time_range.start, e.time_range.end) for e in seen.events() if e.device_type == DeviceType.CUDA]
    return by_kind(events, steps)
