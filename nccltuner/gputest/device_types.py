#!/usr/bin/env python3
"""Which calls do NCCL's device kernels run, and run rightly? JSON lines, one for each kind of memory, collective, type and operator.

    NCCL_SYM_NOWIN_ENABLE=1 NCCL_PROTO=LL nccltuner/gputest/device_types.py RESULTS.jsonl

Run by device_types.sh. Plain NCCL, nothing of ours, a process a GPU, on all GPUs: with these two settings NCCL from 2.29.2 on has its device kernels run what it has
them for, on ordinary memory; on registered memory it does so by itself. Elements are few, at aligned and other addresses. What a line finds is
NCCL's: "error" its words, "wrong" so many elements. Exit 0 whatever they are: nothing here can mend them. Needs PyTorch, of which the types are.
"""
import ctypes
import datetime
import itertools
import json
import multiprocessing
import os
import sys

import torch

P, N, I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
TYPES = {"int8": (0, torch.int8), "uint8": (1, torch.uint8), "int32": (2, torch.int32), "int64": (4, torch.int64), "half": (6, torch.float16),
         "float": (7, torch.float32), "double": (8, torch.float64), "bfloat16": (9, torch.bfloat16), "fp8e4m3": (10, torch.float8_e4m3fn), "fp8e5m2": (11, torch.float8_e5m2)}
OPERATORS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
COUNTS, SHIFTS = (1, 33, 2050), (0, 1, 3)  # elements; a buffer begins so many elements behind an aligned address
ROOM = 1 << 20


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Failed(Exception):
    pass


class Rank:
    def __init__(self, rank, ranks, ids):
        self.rank, self.ranks, self.ids, self.comm, self.stream = rank, ranks, ids, P(), P()
        self.nccl, self.cuda = ctypes.CDLL("libnccl.so.2"), ctypes.CDLL("libcuda.so.1")
        n = self.nccl
        n.ncclGetErrorString.restype = n.ncclGetLastError.restype = ctypes.c_char_p
        n.ncclGetLastError.argtypes = n.ncclCommAbort.argtypes = n.ncclMemFree.argtypes = [P]
        n.ncclCommInitRank.argtypes = [ctypes.POINTER(P), I, UniqueId, I]
        n.ncclAllReduce.argtypes = n.ncclReduceScatter.argtypes = [P, P, N, I, I, P, P]
        n.ncclAllGather.argtypes = [P, P, N, I, P, P]
        n.ncclMemAlloc.argtypes = [ctypes.POINTER(P), N]
        n.ncclCommWindowRegister.argtypes = [P, P, N, ctypes.POINTER(P), I]
        self.cuda.cuMemcpyHtoD_v2.argtypes, self.cuda.cuMemcpyDtoH_v2.argtypes = [ctypes.c_uint64, P, N], [P, ctypes.c_uint64, N]
        self.cuda.cuMemAlloc_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), N]
        self.cuda.cuStreamSynchronize.argtypes = [P]
        context = P()
        self.must(self.cuda.cuInit(0), "cuInit")
        self.must(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), rank), "cuDevicePrimaryCtxRetain")
        self.must(self.cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        self.must(self.cuda.cuStreamCreate(ctypes.byref(self.stream), 1), "cuStreamCreate")
        self.memory = {}

    def must(self, code, what):
        if code:
            raise Failed(f"{what}: {code}")

    def ask(self, code):
        if code:
            raise Failed(f"{self.nccl.ncclGetErrorString(code).decode()}: {self.nccl.ncclGetLastError(None).decode()}")

    def join(self, registered):
        unique = UniqueId()
        if self.rank == 0:
            self.ask(self.nccl.ncclGetUniqueId(ctypes.byref(unique)))
            for q in self.ids[1:]:
                q.put(bytes(unique))
        else:
            ctypes.memmove(ctypes.byref(unique), self.ids[self.rank].get(), 128)
        self.ask(self.nccl.ncclCommInitRank(ctypes.byref(self.comm), self.ranks, unique, self.rank))
        self.memory = {}
        for name in ("send", "recv"):
            if registered:
                at, window = P(), P()
                self.ask(self.nccl.ncclMemAlloc(ctypes.byref(at), ROOM))
                self.ask(self.nccl.ncclCommWindowRegister(self.comm, at, ROOM, ctypes.byref(window), 1))
            else:
                at = ctypes.c_uint64()
                self.must(self.cuda.cuMemAlloc_v2(ctypes.byref(at), ROOM), "cuMemAlloc")
            self.memory[name] = at.value

    def call(self, collective, type_name, operator, count, shift):
        """How many elements are wrong."""
        number, dtype = TYPES[type_name]
        size = torch.empty(0, dtype=dtype).element_size()
        parts = self.ranks if collective == "ReduceScatter" else 1
        sent = []
        for rank in range(self.ranks):
            small = torch.Generator().manual_seed(count * 1000 + rank)
            values = torch.randint(0, 3, (count * parts,), generator=small)
            sent.append(values if dtype is torch.uint8 else values - 1)
        mine = sent[self.rank].to(torch.float32).to(dtype) if dtype.is_floating_point else sent[self.rank].to(dtype)
        send, recv = self.memory["send"] + shift * size, self.memory["recv"] + shift * size
        out = torch.full((count * (self.ranks if collective == "AllGather" else 1) * size,), 0x5A, dtype=torch.uint8)
        self.must(self.cuda.cuMemcpyHtoD_v2(send, mine.view(torch.uint8).data_ptr(), mine.numel() * size), "copy")
        self.must(self.cuda.cuMemcpyHtoD_v2(recv, out.data_ptr(), out.numel()), "copy")
        if collective == "AllGather":
            self.ask(self.nccl.ncclAllGather(send, recv, count, number, self.comm, self.stream))
        else:
            run = self.nccl.ncclAllReduce if collective == "AllReduce" else self.nccl.ncclReduceScatter
            self.ask(run(send, recv, count, number, OPERATORS[operator], self.comm, self.stream))
        self.must(self.cuda.cuStreamSynchronize(self.stream), "cuStreamSynchronize")
        self.must(self.cuda.cuMemcpyDtoH_v2(out.data_ptr(), recv, out.numel()), "copy")
        got = out.view(dtype).to(torch.float64)
        all_sent = torch.stack(sent).to(torch.float64)
        if collective == "AllGather":
            want = all_sent.flatten()
        else:
            want = {"sum": all_sent.sum(0), "prod": all_sent.prod(0), "max": all_sent.amax(0), "min": all_sent.amin(0), "avg": all_sent.sum(0) / self.ranks}[operator]
            want = want if dtype.is_floating_point else want.trunc()
            want = want[self.rank * count:(self.rank + 1) * count] if collective == "ReduceScatter" else want
        return int((got != want).sum())


def work(rank, ranks, ids, results):
    r = Rank(rank, ranks, ids)
    version = ctypes.c_int()
    r.ask(r.nccl.ncclGetVersion(ctypes.byref(version)))
    for memory in ("ordinary", "registered"):
        r.join(memory == "registered")
        for collective, type_name in itertools.product(("AllReduce", "ReduceScatter", "AllGather"), TYPES):
            for operator in OPERATORS if collective != "AllGather" else ("-",):
                line = {"figure": "NCCL's device kernels", "nccl": version.value, "ranks": ranks, "memory": memory, "collective": collective, "type": type_name, "operator": operator,
                        "right": 0, "wrong": [], "error": ""}
                for count, shift in itertools.product(COUNTS, SHIFTS):
                    try:
                        wrong = r.call(collective, type_name, operator, count, shift)
                    except Failed as failed:
                        line["error"] = str(failed)
                        break
                    if wrong:
                        line["wrong"].append({"count": count, "shift": shift, "elements": wrong})
                    else:
                        line["right"] += 1
                results.put((rank, line))
                if line["error"]:
                    r.nccl.ncclCommAbort(r.comm)
                    r.comm = P()
                    r.join(memory == "registered")


def main():
    gpu, _, driver = os.environ.get("MACHINE", "").partition(", ")
    about = {"gpu": gpu, "driver": driver, "commit": os.environ.get("COMMIT", ""), "date": str(datetime.date.today()),
             "settings": {name: os.environ[name] for name in ("NCCL_SYM_NOWIN_ENABLE", "NCCL_PROTO") if name in os.environ}}
    ranks, fork = torch.cuda.device_count(), multiprocessing.get_context("spawn")
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if ranks < 2:
        sys.exit("device_types.py needs two GPUs or more")
    ids, results = [fork.Queue() for _ in range(ranks)], fork.Queue()
    processes = [fork.Process(target=work, args=(rank, ranks, ids, results), daemon=True) for rank in range(ranks)]
    for p in processes:
        p.start()
    kinds = 2 * len(TYPES) * (2 * len(OPERATORS) + 1)
    of, failed = {}, 0
    with open(sys.argv[1], "a", encoding="utf-8") as file:
        for _ in range(kinds * ranks):
            rank, line = results.get(timeout=60)
            key = line["memory"], line["collective"], line["type"], line["operator"]
            told = of.setdefault(key, {**line, "right": 0, "wrong": []})
            told["right"] += line["right"]
            told["wrong"] += [{"rank": rank, **w} for w in line["wrong"]]
            told["error"] = told["error"] or line["error"]
        for told in of.values():
            file.write(json.dumps({**told, **about}) + "\n")
            if told["wrong"] or told["error"]:
                failed += 1
                print(told["memory"], told["collective"], told["type"], told["operator"], told["error"] or f"{len(told['wrong'])} calls wrong, {told['right']} right")
    print(f"{failed} of {len(of)} are wrong or fail")


if __name__ == "__main__":
    main()
