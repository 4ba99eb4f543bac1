"""NCCL by ctypes, as vLLM and SGLang have it beside PyTorch's own: the library is opened once more, and each function looked up in it."""
import ctypes

import torch
import torch.distributed as dist

TYPES = {torch.float16: 6, torch.float32: 7, torch.bfloat16: 9}  # ncclDataType_t
SUM = 0


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


POINTER, SIZE, INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
SIGNATURES = {
    "ncclGetUniqueId": [ctypes.POINTER(UniqueId)],
    "ncclCommInitRank": [ctypes.POINTER(POINTER), INT, UniqueId, INT],
    "ncclAllReduce": [POINTER, POINTER, SIZE, INT, INT, POINTER, POINTER],
    "ncclAllGather": [POINTER, POINTER, SIZE, INT, POINTER, POINTER],
    "ncclReduceScatter": [POINTER, POINTER, SIZE, INT, INT, POINTER, POINTER],
    "ncclCommDestroy": [POINTER],
}


class Communicator:
    """Of all ranks of the group, on each one's device. Calls go to the current stream; tensors are contiguous."""

    def __init__(self):
        library = ctypes.CDLL("libnccl.so.2")  # the one that PyTorch has loaded
        self.functions = {}
        for name, types in SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, INT
            self.functions[name] = function
        unique = UniqueId()
        if dist.get_rank() == 0:
            self.do("ncclGetUniqueId", ctypes.byref(unique))
        told = [bytes(unique)]
        dist.broadcast_object_list(told, src=0)
        self.comm = POINTER()
        self.do("ncclCommInitRank", ctypes.byref(self.comm), dist.get_world_size(), UniqueId.from_buffer_copy(told[0]), dist.get_rank())

    def do(self, name, *args):
        if code := self.functions[name](*args):
            raise RuntimeError(f"{name}: NCCL's error {code}")

    def run(self, name, send, recv, count, *more):
        stream = torch.cuda.current_stream().cuda_stream
        self.do(name, send.data_ptr(), recv.data_ptr(), count, TYPES[send.dtype], *more, self.comm, stream)

    def all_reduce(self, whole):
        self.run("ncclAllReduce", whole, whole, whole.numel(), SUM)

    def all_gather_into_tensor(self, whole, part):
        self.run("ncclAllGather", part, whole, part.numel())

    def reduce_scatter_tensor(self, part, whole):
        self.run("ncclReduceScatter", whole, part, part.numel(), SUM)

    def end(self):
        self.do("ncclCommDestroy", self.comm)
