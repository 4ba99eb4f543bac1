#!/usr/bin/env python3
"""What does NCCL ask its tuner about broadcasts of one group? JSON lines, one for each case (all, or those named); exit 1 where data is wrong.

Two ranks, which are two GPUs of this process. From 2.29 on broadcasts with several roots are one kernel, about which NCCL asks as about
an AllGather. Run by nccltuner/gputest/asked.sh, whose tuner (tuner.c) writes down each question.
"""
import array
import collections
import ctypes
import json
import os
import sys

RANKS = 2
FUNCTIONS = {0: "Broadcast", 1: "Reduce", 2: "AllGather", 3: "ReduceScatter", 4: "AllReduce"}  # ncclFunc_t
FLOAT, SUM, NON_BLOCKING = 7, 0, 1
ROOM = 64 << 20

cuda, nccl = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnccl.so.2")


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


P, N, I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(P), I, UniqueId, I]
nccl.ncclBroadcast.argtypes = [P, P, N, I, I, P, P]
nccl.ncclAllGather.argtypes = [P, P, N, I, P, P]
nccl.ncclAllReduce.argtypes = [P, P, N, I, I, P, P]
nccl.ncclCommDestroy.argtypes = cuda.cuCtxSetCurrent.argtypes = cuda.cuStreamSynchronize.argtypes = [P]
cuda.cuMemcpyHtoD_v2.argtypes = [ctypes.c_uint64, P, N]
cuda.cuMemcpyDtoH_v2.argtypes = [P, ctypes.c_uint64, N]
cuda.cuMemAlloc_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), N]


def must(code):
    if code:
        call = sys._getframe(1)
        sys.exit(f"error {code} of the call in line {call.f_lineno}; NCCL_DEBUG=WARN says more")


class Gpu:
    def __init__(self, rank):
        self.context, self.comm, self.child = P(), P(), P()
        self.streams, self.send, self.recv = [P(), P()], ctypes.c_uint64(), ctypes.c_uint64()
        must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), rank))
        self.enter()
        for memory in (self.send, self.recv):
            must(cuda.cuMemAlloc_v2(ctypes.byref(memory), ROOM))
        for stream in self.streams:
            must(cuda.cuStreamCreate(ctypes.byref(stream), NON_BLOCKING))

    def enter(self):
        must(cuda.cuCtxSetCurrent(self.context))

    def put(self, at, data):
        self.enter()
        must(cuda.cuMemcpyHtoD_v2(at, data, len(data)))

    def get(self, at, length):
        self.enter()
        data = ctypes.create_string_buffer(length)
        must(cuda.cuMemcpyDtoH_v2(data, at, length))
        return data.raw

    def settle(self):
        self.enter()
        for stream in self.streams:
            must(cuda.cuStreamSynchronize(stream))


def grouped(gpus, each):
    must(nccl.ncclGroupStart())
    for rank, gpu in enumerate(gpus):
        gpu.enter()
        each(rank, gpu)
    must(nccl.ncclGroupEnd())


# A case is the calls of one group: (root, bytes) is a broadcast; what follows "child" is the child's, behind "stream" the other stream's.
K = 1024
CASES = {
    "one broadcast": [(0, K)],
    "two of one root": [(0, K), (0, K)],
    "two roots": [(0, K), (1, K)],
    "two roots, the other one first": [(1, K), (0, K)],
    "two roots of other sizes": [(0, K), (1, 64 * K)],
    "two roots, one of no bytes": [(0, K), (1, 0)],
    "two roots of 1 MiB": [(0, K * K), (1, K * K)],
    "two roots of 16 MiB": [(0, 16 * K * K), (1, 16 * K * K)],
    "eight of two roots": [(i % 2, K) for i in range(8)],
    "two roots and an AllReduce": [(0, K), "AllReduce", (1, K)],
    "two roots and an AllGather": [(0, K), (1, K), "AllGather"],
    "two roots of a child": ["child", (0, K), (1, K)],
    "one broadcast of a child": ["child", (0, K)],
    "an AllGather": ["AllGather"],
    "an AllGather of a child": ["child", "AllGather"],
    "two roots on two streams": [(0, K), "stream", (1, K)],
}


def calls_of(case):
    """(name, root, bytes, offset in both buffers, stream, whether the child's) of each."""
    calls, at, stream, child = [], 0, 0, False
    for what in case:
        if what == "stream":
            stream = 1
        elif what == "child":
            child = True
        else:
            name, root, length = (what, 0, K) if isinstance(what, str) else ("Broadcast", *what)
            calls.append((name, root, length, at, stream, child))
            at += length * (RANKS if name == "AllGather" else 1)
    return calls


def sent(name, rank, root, length):
    """By a rank, up to 4 KiB of it: of a broadcast also what nobody is to see. Floats that add up exactly, or bytes."""
    mine = rank if name != "Broadcast" or rank == root else 9
    return array.array("f", [1 + mine] * (K // 4)).tobytes() if name == "AllReduce" else bytes((17 * mine + 3 * i + 1) % 251 for i in range(min(length, 4 * K)))


def results(name, root, length):
    """(offset behind the call's, bytes) that every rank has."""
    if name == "AllReduce":
        return [(0, array.array("f", [sum(range(1, RANKS + 1))] * (K // 4)).tobytes())]
    if name == "AllGather":
        return [(r * length, sent(name, r, root, length)) for r in range(RANKS)]
    return [(0, sent(name, root, root, length))]


def play(gpus, calls):
    """How many bytes were wrong."""
    for rank, gpu in enumerate(gpus):
        for name, root, length, at, _, _ in calls:
            gpu.put(gpu.send.value + at, sent(name, rank, root, length))

    def each(rank, gpu):
        for name, root, length, at, stream, child in calls:
            send, recv, comm, on = gpu.send.value + at, gpu.recv.value + at, gpu.child if child else gpu.comm, gpu.streams[stream]
            if name == "AllReduce":
                must(nccl.ncclAllReduce(send, recv, length // 4, FLOAT, SUM, comm, on))
            elif name == "AllGather":
                must(nccl.ncclAllGather(send, recv, length // 4, FLOAT, comm, on))
            else:
                must(nccl.ncclBroadcast(send, recv, length // 4, FLOAT, root, comm, on))

    grouped(gpus, each)
    wrong = 0
    for gpu in gpus:
        gpu.settle()
        for name, root, length, at, _, _ in calls:
            for offset, want in results(name, root, length):
                wrong += sum(a != b for a, b in zip(gpu.get(gpu.recv.value + at + offset, len(want)), want))
    return wrong


def main():
    must(cuda.cuInit(0))
    gpus, version, unique = [Gpu(rank) for rank in range(RANKS)], ctypes.c_int(), UniqueId()
    must(nccl.ncclGetVersion(ctypes.byref(version)))
    must(nccl.ncclGetUniqueId(ctypes.byref(unique)))
    grouped(gpus, lambda rank, gpu: must(nccl.ncclCommInitRank(ctypes.byref(gpu.comm), RANKS, unique, rank)))
    split = hasattr(nccl, "ncclCommSplit")  # from 2.18 on, and not in the stand-in for NCCL
    if split:
        nccl.ncclCommSplit.argtypes = [P, I, I, ctypes.POINTER(P), P]
        grouped(gpus, lambda rank, gpu: must(nccl.ncclCommSplit(gpu.comm, 0, rank, ctypes.byref(gpu.child), None)))
    read, written = os.pipe()
    os.set_blocking(read, False)
    os.environ["ASKED_FD"] = str(written)
    all_right = True
    for name, case in CASES.items():
        if sys.argv[1:] and name not in sys.argv[1:] or "child" in case and not split:
            continue
        calls, asked = calls_of(case), collections.Counter()
        wrong = play(gpus, calls)
        try:
            for line in os.read(read, 1 << 16).decode().splitlines():
                function, length, operations = map(int, line.split())
                asked[FUNCTIONS.get(function, function), length, operations] += 1
        except BlockingIOError:
            pass  # of nothing
        questions = [{"of": of, "bytes": length, "numPipeOps": operations, "times": times} for (of, length, operations), times in asked.items()]
        print(json.dumps({"figure": "asked of broadcasts", "nccl": version.value, "ranks": RANKS, "case": name, "asked": questions, "wrong": wrong}), flush=True)
        all_right = all_right and not wrong
    for gpu in gpus:
        gpu.enter()
        if gpu.child:
            must(nccl.ncclCommDestroy(gpu.child))
        must(nccl.ncclCommDestroy(gpu.comm))
    return not all_right


if __name__ == "__main__":
    sys.exit(main())
