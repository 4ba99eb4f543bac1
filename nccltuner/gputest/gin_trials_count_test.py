"""Tests of gin_trials_count: trials are counted by way, from the switch on, and quiet alarms once it is settled."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gin_trials_count import count, read_puts

HEAD = "at_ns,comm,seq,collective,log2_bytes,bytes,action,ran,counter_ns,signal_ns,skew_ns,first_rank,plan,sound,alarms,rank,peer,context,diagnosis,idle\n"


def put(at, context, alarm, diagnosis):
    return (at, ("c", "0", "1", str(context)), alarm, diagnosis)


class Count(unittest.TestCase):
    switches = [{"at": 0, "fault": "none"}, {"at": 10, "fault": "backend-fallback"}, {"at": 20, "fault": "none"}, {"at": 30, "fault": "congestion"}, {"at": 40, "fault": "none"}]

    def test_counts_each_way_from_the_switch_on(self):
        puts = [put(5, c, False, "none") for c in (0, 1)]
        puts += [put(11, 0, False, "none"), put(12, 0, True, "unknown"), put(13, 0, False, "backend-fallback"), put(14, 1, True, "congestion")]
        puts += [put(21, 0, True, "recovered"), put(25, 0, True, "recovered"), put(26, 1, False, "congestion")]
        puts += [put(31 + i / 10, 0, i == 32, "congestion" if i == 33 else "recovered") for i in range(34)]
        lines = count(puts, self.switches)
        self.assertEqual([line.get("fault") for line in lines], ["none", "backend-fallback", "none", "congestion", None])
        self.assertEqual((lines[1]["ways"], lines[1]["alarm_after_puts"], lines[1]["right_after_puts"], lines[1]["right_after_s"]), (2, [1, 2], [3], [3]))
        self.assertEqual(lines[2]["over"], 1)
        total = lines[-1]
        self.assertEqual((total["quiet_puts"], total["quiet_alarms"]), (2, 0))
        self.assertEqual((total["puts_behind_faults"], total["alarms_behind_faults"]), (2, 1), "what is made at once behind a switch back is its own")
        self.assertEqual(total["backend-fallback"], {"trials": 2, "right": 1, "other": 1, "detected": 2, "detected_within_32": 2, "alarm_after_puts_median": 2})
        self.assertEqual(total["congestion"], {"trials": 1, "right": 1, "other": 0, "detected": 1, "detected_within_32": 0, "alarm_after_puts_median": 33})

    def test_reads_a_trace(self):
        rows = "7000000000,ab,3,AllReduce,9,512,default,-,1,2,3,0,1,true,0,,,,,false\n8500000000,ab,4,put,9,512,gin/gdaki/1,-,5,10,,,,,1,0,1,2,unknown,\n"
        self.assertEqual(list(read_puts((HEAD + rows).splitlines(True))), [(8.0, ("ab", "0", "1", "2"), True, "unknown")])

    def test_numbers_say_when_a_put_was_made(self):
        rows = "".join(f"{at}000000000,ab,{n},put,9,512,gin/gdaki/1,-,5,10,,,,,0,0,1,2,none,\n" for at, n in ((8, 100), (9, 150), (9, 200), (9, 125), (10, 300)))
        self.assertEqual([p[0] for p in read_puts((HEAD + rows).splitlines(True))], [7.5, 8.0, 8.5, 7.75, 9.5])


if __name__ == "__main__":
    unittest.main()
