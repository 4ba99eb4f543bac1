"""A program that has NCCL by ctypes, as vLLM and SGLang do: it opens libnccl.so.2 for itself and looks each function up.

  looked_up.py RANKS BYTES CALLS     the GPUs of one process; for each line that it reads so many AllReduces, and how many elements are wrong
"""
import array
import ctypes
import sys

ranks, size, calls = map(int, sys.argv[1:])
cuda = ctypes.CDLL("libcuda.so.1")
nccl = ctypes.CDLL("libnccl.so.2")
FLOAT, SUM, NON_BLOCKING = 7, 0, 1
count = size // 4


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId, ctypes.c_int]
nccl.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
nccl.ncclCommDestroy.argtypes = cuda.cuCtxSetCurrent.argtypes = cuda.cuStreamSynchronize.argtypes = [ctypes.c_void_p]
cuda.cuMemcpyHtoD_v2.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t]
cuda.cuMemcpyDtoH_v2.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t]
cuda.cuMemAlloc_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t]


def must(code):
    if code != 0:
        sys.exit(f"error {code}")


class Gpu:
    def __init__(self, rank):
        self.context, self.stream, self.comm = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.send, self.recv = ctypes.c_uint64(), ctypes.c_uint64()
        must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), rank))
        must(cuda.cuCtxSetCurrent(self.context))
        for memory in (self.send, self.recv):
            must(cuda.cuMemAlloc_v2(ctypes.byref(memory), size))
        must(cuda.cuStreamCreate(ctypes.byref(self.stream), NON_BLOCKING))
        values = array.array("f", [1 + rank + i % 7 for i in range(count)])
        must(cuda.cuMemcpyHtoD_v2(self.send, values.buffer_info()[0], size))

    def wrong(self):
        got = array.array("f", bytes(size))
        must(cuda.cuCtxSetCurrent(self.context))
        must(cuda.cuStreamSynchronize(self.stream))
        must(cuda.cuMemcpyDtoH_v2(got.buffer_info()[0], self.recv, size))
        return sum(x != sum(1 + r + i % 7 for r in range(ranks)) for i, x in enumerate(got))


must(cuda.cuInit(0))
gpus = [Gpu(rank) for rank in range(ranks)]
unique = UniqueId()
must(nccl.ncclGetUniqueId(ctypes.byref(unique)))
must(nccl.ncclGroupStart())
for rank, gpu in enumerate(gpus):
    must(cuda.cuCtxSetCurrent(gpu.context))
    must(nccl.ncclCommInitRank(ctypes.byref(gpu.comm), ranks, unique, rank))
must(nccl.ncclGroupEnd())
for _ in sys.stdin:
    for _ in range(calls):
        must(nccl.ncclGroupStart())
        for gpu in gpus:
            must(nccl.ncclAllReduce(gpu.send.value, gpu.recv.value, count, FLOAT, SUM, gpu.comm, gpu.stream))
        must(nccl.ncclGroupEnd())
    print(sum(gpu.wrong() for gpu in gpus), flush=True)
for gpu in gpus:
    must(nccl.ncclCommDestroy(gpu.comm))
