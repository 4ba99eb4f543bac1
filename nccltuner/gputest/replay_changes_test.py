"""What replay_changes.py makes of what a daemon tells."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import replay_changes


def told(replays, changes, us):
    return {"replays": replays, "changes": changes, "signal": {"median_ns": us * 1e3}}


class Changes(unittest.TestCase):
    small, large = ("1", "AllReduce", 8192, "lsa/oneshot/4"), ("1", "AllReduce", 1 << 20, "lsa/twoshot/64")

    def rows(self, *changes):
        """Of the large choice at the beginning and at the end of each phase; the small one does not change."""
        seen = [{self.small: told(100 * i, 0, 2.0), self.large: told(200 * i, n, 9.0 + i)} for i, n in enumerate(changes)]
        return list(replay_changes.lines(("before", "copies", "after"), seen))

    def test_phases(self):
        small, large = self.rows(0, 0, 1, 3)
        self.assertEqual([p["replays"] for p in small["phases"]], [100] * 3)
        self.assertEqual([(p["phase"], p["replays"], p["changes"], p["signal_median_us"]) for p in large["phases"]],
                         [("before", 200, 0, 10.0), ("copies", 200, 1, 11.0), ("after", 200, 2, 12.0)])
        self.assertEqual((large["collective"], large["bytes"], large["choice"]), self.large[1:])

    def test_tells(self):
        for changes, tells in (((0, 0, 1, 2), True), ((2, 2, 3, 3), True), ((0, 1, 2, 3), False), ((0, 0, 0, 1), False)):
            self.assertEqual(replay_changes.tells(self.rows(*changes)), tells, changes)
        self.assertFalse(replay_changes.tells([]))

    def test_one_that_comes_later_is_left_out(self):
        seen = [{self.small: told(i, 0, 2.0)} for i in range(4)]
        seen[3][self.large] = told(1, 0, 9.0)
        self.assertEqual(len(list(replay_changes.lines(("before", "copies", "after"), seen))), 1)

    def test_flags(self):
        self.assertEqual(replay_changes.options(["--store", "s", "--phases", "1,2,3"]).phases, [1.0, 2.0, 3.0])
        with self.assertRaises(SystemExit):
            replay_changes.options(["--store", "s", "--phases", "1,2"])

    def test_nobody_answers(self):
        self.assertEqual(replay_changes.replays("/nonexistent"), {})


if __name__ == "__main__":
    unittest.main()
