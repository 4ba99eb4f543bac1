"""Tests of samples_check without a GPU: points that agree, that are off, and that are ordered otherwise."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from samples_check import check


def point(action, event, sampled, ran="Ring/LL/1"):
    return {"collective": "AllReduce", "bytes": 1024, "action": action, "median_us": event, "sampled_us": sampled, "ran": ran}


class Check(unittest.TestCase):
    def test_counts_what_is_within_and_what_is_ordered_alike(self):
        stream = [point("default", 10, 10.5), point("a", 20, 22), point("b", 100, 104), point("c", 12, 10.2)]
        # By samples c is cheaper than the default and a dearer, by graphs the other way round and a cheaper than c.
        graphs = [point("default", 8.5, 0), point("c", 9, 0), point("a", 8, 0)]
        lines, totals = check(stream, graphs, 1)
        # default and b are within; a is 2 us and 10% off, c 1.8 us and 15%. c is cheaper than the default by samples alone.
        self.assertEqual(totals, {"points": 4, "within_5pct_or_1us": 2, "graph_pairs_more_than_3pct_apart": 3, "graph_ordered_alike": 0, "pairs_more_than_3pct_apart": 6, "ordered_alike": 5,
                                  "same_calls_pairs_more_than_3pct_apart": 0, "same_calls_ordered_alike": 0,
                                  "same_choice_pairs": 6, "same_choice_more_than_3pct_apart": 6})
        self.assertEqual(lines[0]["events_us_default"], 10)
        self.assertEqual((lines[0]["stream_less_graph_us_median"], lines[0]["sampled_less_graph_us_median"]), (3, 2))
        self.assertEqual(lines[0]["sampled_less_events_us_median"], 1.25)

    def test_holds_samples_against_the_very_calls_that_gave_them(self):
        # Of one choice, called at two times, the events differ by 10%; where it was sampled they do as the samples do.
        a, b = point("default", 20, 20), point("a", 22, 19, "Ring/LL/1")
        c = point("b", 30, 31, "Tree/LL/1")
        stream = [a | {"watched_us": 21}, b | {"watched_us": 20}, c | {"watched_us": 19}]
        totals = check(stream, [], 2)[1]
        self.assertEqual((totals["pairs_more_than_3pct_apart"], totals["ordered_alike"]), (3, 2))
        self.assertEqual((totals["same_calls_pairs_more_than_3pct_apart"], totals["same_calls_ordered_alike"]), (3, 1))
        self.assertEqual((totals["same_choice_pairs"], totals["same_choice_more_than_3pct_apart"]), (1, 1))

    def test_leaves_out_trees_on_one_node_and_points_without_samples(self):
        stream = [point("a", 10, 5, "Tree/LL/1"), {**point("b", 10, 0), "sampled_us": 0}]
        self.assertEqual(check(stream, [], 1)[1]["points"], 0)
        self.assertEqual(check(stream, [], 2)[1]["points"], 1)


if __name__ == "__main__":
    unittest.main()
