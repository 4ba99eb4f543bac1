"""Tests of program_perturbed.py: what a program of PyTorch's gets done before its own words, without PyTorch and a GPU."""
import contextlib
import ctypes
import io
import os
import sys
import tempfile
import types
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import program_perturbed


class Perturbed(unittest.TestCase):
    def run_program(self, perturb, code=0, text="import torch.distributed\ntorch.distributed.init_process_group('nccl', device_id=3)\n"):
        """(what was called, in order; how it ended; what it said)"""
        calls, said = [], io.StringIO()
        driver = mock.Mock(**{f"{name}.side_effect": lambda *_, name=name: calls.append(name) or code for name in (
            "cuStreamCreate", "cuStreamSynchronize", "cuStreamDestroy_v2", "cuMemsetD8Async", "cuMemAllocHost_v2", "cuEventCreate", "cuMemAlloc_v2", "cuIpcGetMemHandle", "cuModuleLoadData")})
        torch = types.ModuleType("torch")
        torch.distributed = types.ModuleType("torch.distributed")
        torch.distributed.init_process_group = lambda backend, device_id: calls.append(f"{backend} {device_id}")
        torch.zeros = lambda n, device: None
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(sys.modules, {"torch": torch, "torch.distributed": torch.distributed}), \
                mock.patch.dict(os.environ, {"PERTURB": perturb}), mock.patch.object(ctypes, "CDLL", return_value=driver), \
                mock.patch.object(sys, "argv", []), mock.patch.object(sys, "path", list(sys.path)), contextlib.redirect_stderr(said):
            program, kernels = os.path.join(folder, "program.py"), os.path.join(folder, "kernels")
            for path in (program, kernels):
                with open(path, "w") as file:
                    file.write(text)
            with mock.patch.object(program_perturbed, "KERNELS", kernels):
                try:
                    return calls, program_perturbed.main(["program_perturbed.py", program, "--steps", "2"]), said.getvalue()
                except SystemExit as end:
                    return calls, end.code, said.getvalue()

    def test_nothing_without_words(self):
        self.assertEqual(self.run_program("")[:2], (["nccl 3"], 0))

    def test_each_thing_behind_joining(self):
        for perturb, wanted in {"stream": ["cuStreamCreate", "cuStreamSynchronize", "cuStreamDestroy_v2"], "host": ["cuMemAllocHost_v2"], "events": 64 * ["cuEventCreate"],
                                "turn": ["cuMemAlloc_v2", "cuStreamCreate", "cuMemsetD8Async", "cuStreamSynchronize", "cuStreamDestroy_v2"],
                                "memory,module": ["cuMemAlloc_v2", "cuIpcGetMemHandle", "cuModuleLoadData"]}.items():
            self.assertEqual(self.run_program(perturb)[:2], (["nccl 3"] + wanted, 0), perturb)

    def test_early_things_before_joining(self):
        self.assertEqual(self.run_program("early-host,stream,early-nothing")[:2], (["cuMemAllocHost_v2", "nccl 3", "cuStreamCreate", "cuStreamSynchronize", "cuStreamDestroy_v2"], 0))

    def test_the_program_has_its_own_arguments(self):
        self.assertEqual(self.run_program("", text="import sys\nsys.exit(' '.join(sys.argv[1:]))\n")[1], "--steps 2")

    def test_a_rank_has_its_share_of_cpus(self):
        for cpus, rank, wanted in ((range(64), 1, list(range(8, 16))), (range(2, 8), 2, [4]), ([5], 3, [5])):
            with mock.patch.object(os, "sched_getaffinity", return_value=set(cpus)), mock.patch.object(os, "sched_setaffinity") as sets, \
                    mock.patch.dict(os.environ, {"LOCAL_RANK": str(rank)}):
                self.run_program("pin")
            sets.assert_called_once_with(0, wanted)

    def test_errors_are_told(self):
        self.assertIn("CUDA's error 2", self.run_program("stream", code=2)[1])
        _, code, said = self.run_program("stream,pigeon")
        self.assertEqual(code, 2)
        self.assertIn("words are stream, turn, host, events, memory, module, nothing, early-stream", said)


if __name__ == "__main__":
    unittest.main()
