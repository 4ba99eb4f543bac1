"""Tests of beside.py without a GPU: what it makes of times, and of what fails."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "beside"))
import beside


class Gpu:
    """Stands in for the library and for PyTorch: an operation loses a quarter of its speed where anything is held."""
    sms = 128

    def __init__(self, limit=65):
        self.held, self.limit, self.number = 0, limit, 0
        self.operations = {"matmul": (self.work, 4, 1e9, "tflops")}

    def work(self):
        pass

    def timed(self, operation, times):
        operation()
        return 4.0 if self.held else 3.0

    def hold(self, ctas, moves, smem, carveout):
        self.held = ctas

    def release(self):
        held, self.held = self.held, 0
        return float(held >= self.limit), held, 5.0, 10.0

    def launches(self, every_us, events, around, at_once):
        self.number += 1
        return 2.0 + (0.5 if every_us == 20 else 0) + {beside.NOTHING: 0, beside.EVENTS: 1, beside.QUESTION: 0.25}[around] + (4 if every_us == beside.NO_PAUSE else 0), 1.0, 7.0, float(every_us == 500)


class Beside(unittest.TestCase):
    def setUp(self):
        warm = beside.warm
        self.addCleanup(setattr, beside, "warm", warm)
        beside.warm = lambda products, operation, times: warm(products, operation, times, 0.0)

    def rows(self, part, *arguments):
        rows = []
        return part(*arguments, rows.append), rows

    def test_compute(self):
        gpu = Gpu()
        whole, rows = self.rows(beside.compute, gpu, gpu, 3)
        self.assertTrue(whole)
        self.assertEqual(len(rows), 2 * len(beside.SMEMS) * len(beside.CTAS))
        for row in rows:
            k = row["k"]
            self.assertEqual((row["ratio"], row["lost"], row["median_ms"]), (1.3333, 0.25, 4.0) if k else (1.0, 0.0, 3.0), row)
            self.assertEqual((row["sm_share"], row["held_sms"], row["rounds"], row["expired"]), (k / 128, k, 3, 0), row)

    def test_held_too_short(self):
        gpu = Gpu(limit=32)
        whole, rows = self.rows(beside.compute, gpu, gpu, 3)
        self.assertFalse(whole)
        for row in rows:
            self.assertEqual("error" in row, row["k"] >= 32, row)
            self.assertEqual(row["expired"], 4 if row["k"] >= 32 else 0, row)

    def test_one_operation_fails(self):
        gpu = Gpu()
        gpu.operations = {"fails": (lambda: 1 // 0, 4, 1e9, "tflops"), **gpu.operations}
        whole, rows = self.rows(beside.compute, gpu, gpu, 3)
        self.assertFalse(whole)
        self.assertIn("division", rows[0]["error"])
        self.assertEqual({row["op"] for row in rows[1:]}, {"matmul"})
        self.assertFalse(any("error" in row for row in rows[1:]))

    def test_launches(self):
        gpu = Gpu()
        whole, rows = self.rows(beside.launches, gpu, 3)
        self.assertFalse(whole)  # nothing was measured of the arms that ask every 500 us
        self.assertEqual(gpu.number, 5 * len(beside.ARMS))
        by = {row["arm"]: row for row in rows}
        self.assertEqual(list(by), [arm[0] for arm in beside.ARMS])
        self.assertEqual([arm for arm, row in by.items() if "error" in row], ["every 500 us after 1", "every 500 us after 8"])
        for arm, added, ratio in (("never, again", 0, 1), ("every 20 us after 8", 0.5, 1.25), ("every 80 us after 1", 0, 1), ("events recorded", 1, 1.5), ("without a pause after 1", 4, 3), ("asked whether captured", 0.25, 1.125),
                                  ("events recorded, every 20 us after 1", 1.5, 1.75), ("events recorded, 200 at once", 1, 1.5)):
            self.assertEqual((by[arm]["added_us"], by[arm]["ratio"], by[arm]["rounds"]), (added, ratio, 3), arm)

    def test_spread(self):
        self.assertEqual(beside.spread([5, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11], 1), [6, 2, 10])
        self.assertEqual(beside.spread([2.0], 1), [2.0, 2.0, 2.0])
