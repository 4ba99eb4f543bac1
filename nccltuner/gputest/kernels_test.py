"""Tests of examples/kernels.py: what a step's GPU time goes to."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples"))
import kernels  # noqa: E402


class Kernels(unittest.TestCase):
    def test_kinds(self):
        self.assertEqual([kernels.kind(x) for x in ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "bulk_bfloat16",
                                                    "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "sm90_xmma_gemm_bf16", "pytorch_flash::flash_bwd", "Memcpy DtoD",
                                                    "void at::native::vectorized_elementwise_kernel")],
                         ["communication", "communication", "products", "products", "attention", "copies", "others"])

    def test_by_kind(self):
        events = [("gemm", 0, 100), ("ncclDevKernel", 50, 180), ("elementwise", 90, 120), ("gemm", 200, 300)]
        self.assertEqual(kernels.by_kind(events, 2), {"products_us": 100.0, "communication_us": 65.0, "others_us": 15.0, "all_compute_us": 110.0,
                                                      "exposed_us": 30.0, "idle_us": 10.0, "gap_us": 80})
        self.assertEqual(kernels.by_kind([], 2), {})

    def test_between(self):
        self.assertEqual(kernels.between([(0, 4), (5, 6), (8, 9), (8.5, 10), (13, 20)]), 2)
        self.assertEqual(kernels.between([(0, 4)]), 0)


if __name__ == "__main__":
    unittest.main()
