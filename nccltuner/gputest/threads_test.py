"""Tests of examples/threads.py: what a step's time on the host goes to."""
import os
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples"))
import threads  # noqa: E402


class Threads(unittest.TestCase):
    def test_between(self):
        before = {"1": ("main", 1_000_000, 0, 10), "2": ("poller", 0, 500, 7), "3": ("ended", 9, 9, 9)}
        after = {"1": ("main", 5_000_000, 80_000, 30), "2": ("poller", 20_000_000, 500, 407), "4": ("new", 99_000_000, 0, 1)}
        both = [{"thread": "poller", "runs_us": 5000.0, "waits_us": 0.0, "turns": 100.0}, {"thread": "main", "runs_us": 1000.0, "waits_us": 20.0, "turns": 5.0}]
        self.assertEqual(threads.between(before, after, 4), both)
        self.assertEqual(threads.between(before, after, 4, most=1), both[:1])

    def test_a_thread_that_ends_meanwhile_is_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            for thread, files in {"7": {"comm": "python3\n", "schedstat": "12 34 5\n"}, "8": {"comm": "gone\n"}}.items():
                os.mkdir(os.path.join(folder, thread))
                for name, text in files.items():
                    with open(os.path.join(folder, thread, name), "w") as file:
                        file.write(text)
            self.assertEqual(threads.now(folder), {"7": ("python3", 12, 34, 5)})
            self.assertEqual(threads.now(os.path.join(folder, "nowhere")), {})

    @unittest.skipUnless(os.path.exists("/proc/self/schedstat"), "Linux says it")
    def test_of_this_process(self):
        begin, stop = threading.Event(), threading.Event()
        sleeper = threading.Thread(target=lambda: (begin.set(), stop.wait()))
        sleeper.start()
        begin.wait()
        try:
            before, until = threads.now(), time.thread_time() + 0.05
            while time.thread_time() < until:
                pass
            busiest = threads.between(before, threads.now(), 1)
        finally:
            stop.set()
            sleeper.join()
        self.assertGreater(busiest[0]["runs_us"], 40e3)
        self.assertLess(busiest[1]["runs_us"], 40e3)


if __name__ == "__main__":
    unittest.main()
