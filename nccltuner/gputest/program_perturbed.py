#!/usr/bin/env python3
"""Runs a program of PyTorch's; each rank does, once it has joined the group, single things with the driver that libdynamiccl.so does there.

  PERTURB=stream,host torchrun ... nccltuner/gputest/program_perturbed.py PROGRAM.py [ARGUMENT]...

Where steps are longer with DynamICCL and nothing chosen, this says whether one of these does it by itself (program_parts.sh):
stream: one is made, waited for and destroyed. turn: that, with work on it, by which it takes a turn of the GPU's front end
(docs/design/kernels.md, decision 34). host: 300 kB of pinned memory. events: 64 with times. memory: 64 MiB on the GPU, with a handle for other
processes. module: our kernels, loaded (lib/dynamiccl-kernels.fatbin). nothing: there is a context.
early- before any of them has it done before the group is joined, hence before NCCL and PyTorch make their streams.
One more fits under DynamICCL, too: pin gives each rank an eighth of the machine's CPUs from its begin on.
"""
import ctypes
import os
import runpy
import sys

NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
KERNELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib/dynamiccl-kernels.fatbin")
kept = []  # as the library keeps them


def must(code):
    if code != 0:
        sys.exit(f"program_perturbed.py: CUDA's error {code}")


def made(make, *arguments):
    handle = ctypes.c_void_p()
    must(make(ctypes.byref(handle), *arguments))
    kept.append(handle)
    return handle


def stream(cuda, put=lambda it: None):
    it = made(cuda.cuStreamCreate, NON_BLOCKING)
    put(it)
    must(cuda.cuStreamSynchronize(it))
    must(cuda.cuStreamDestroy_v2(it))


def turn(cuda):
    size = ctypes.c_size_t(4096)
    memory = made(cuda.cuMemAlloc_v2, size)
    stream(cuda, lambda it: must(cuda.cuMemsetD8Async(memory, 0, size, it)))


def host(cuda):
    made(cuda.cuMemAllocHost_v2, ctypes.c_size_t(300000))


def events(cuda):
    for _ in range(64):
        made(cuda.cuEventCreate, 0)


def memory(cuda):
    must(cuda.cuIpcGetMemHandle(ctypes.create_string_buffer(64), made(cuda.cuMemAlloc_v2, ctypes.c_size_t(64 << 20))))


def module(cuda):
    with open(KERNELS, "rb") as file:
        kept.append(file.read())
    made(cuda.cuModuleLoadData, kept[-1])


def pin(rank):
    cpus = sorted(os.sched_getaffinity(0))
    each = max(len(cpus) // 8, 1)
    os.sched_setaffinity(0, [cpus[(rank * each + i) % len(cpus)] for i in range(each)])


def nothing(cuda):
    pass


THINGS = {thing.__name__: thing for thing in (stream, turn, host, events, memory, module, nothing)}
EARLY = "early-"
WORDS = [*THINGS, *(EARLY + thing for thing in THINGS), "pin"]


def main(argv):
    things = [word for word in os.environ.get("PERTURB", "").split(",") if word]
    if len(argv) < 2 or argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    if not set(things) <= set(WORDS):
        print(f"PERTURB={','.join(things)}: words are {', '.join(WORDS)}", file=sys.stderr)
        return 2
    if "pin" in things:
        pin(int(os.environ.get("LOCAL_RANK", 0)))
    import torch
    import torch.distributed as dist
    join = dist.init_process_group

    def do(names):
        if not names:
            return
        torch.zeros(1, device="cuda")  # this thread has a context from here on
        cuda = ctypes.CDLL("libcuda.so.1")
        for name in names:
            THINGS[name](cuda)

    def joined(*arguments, **named):
        do([word[len(EARLY):] for word in things if word.startswith(EARLY)])
        join(*arguments, **named)
        do([word for word in things if word in THINGS])

    dist.init_process_group = joined
    sys.argv = argv[1:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(argv[1])))
    runpy.run_path(argv[1], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
