"""Tests of gin_trials_count: trials are counted by way, from the switch on, and quiet alarms once it is settled; and of gin_trials.sh with
programs that only print."""
import json
import os
import shutil
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gin_trials_count import choices, count, read_puts
from program_scripts_test import HERE, Tree

HEAD = "at_ns,comm,seq,collective,log2_bytes,bytes,action,ran,counter_ns,signal_ns,skew_ns,first_rank,plan,sound,alarms,rank,peer,context,diagnosis,idle\n"


def put(at, context, alarm, diagnosis):
    return (at, ("c", "0", "1", str(context)), alarm, diagnosis, round(100 * at))  # 100 calls a second


class Count(unittest.TestCase):
    switches = [{"at": 0, "fault": "none"}, {"at": 10, "fault": "backend-fallback"}, {"at": 20, "fault": "none"}, {"at": 30, "fault": "congestion"}, {"at": 40, "fault": "none"}]

    def test_counts_each_way_from_the_switch_on(self):
        puts = [put(0, 0, False, "none")] + [put(5, c, False, "none") for c in (0, 1)]
        puts += [put(11, 0, False, "none"), put(12, 0, True, "unknown"), put(13, 0, False, "backend-fallback"), put(14, 1, True, "congestion")]
        puts += [put(21, 0, True, "recovered"), put(25, 0, True, "recovered"), put(26, 1, False, "congestion")]
        puts += [put(31 + i / 10, 0, i == 32, "congestion" if i == 33 else "recovered") for i in range(34)]
        lines = count(puts, self.switches)
        self.assertEqual([line.get("fault") for line in lines], ["none", "backend-fallback", "none", "congestion", None])
        self.assertEqual((lines[1]["ways"], lines[1]["alarm_after_puts"], lines[1]["right_after_puts"], lines[1]["right_after_s"]), (2, [1, 2], [3], [3]))
        self.assertEqual((lines[1]["calls"], lines[1]["alarm_after_s"], lines[1]["alarm_after_calls"]), (1000, [2, 4], [200, 400]))
        self.assertEqual(lines[2]["over"], 1)
        total = lines[-1]
        self.assertEqual((total["quiet_s"], total["quiet_calls"], total["quiet_puts"], total["quiet_alarms"]), (7, 700, 2, 0))
        self.assertEqual((total["puts_behind_faults"], total["alarms_behind_faults"]), (2, 1), "what is made at once behind a switch back is its own")
        self.assertEqual(total["backend-fallback"], {"trials": 2, "right": 1, "other": 1, "detected": 2, "detected_within_32": 2, "alarm_after_puts_median": 2, "alarm_after_puts_most": 2,
                                                     "alarm_after_s_median": 4, "alarm_after_s_most": 4, "alarm_after_calls_median": 400, "alarm_after_calls_most": 400})
        self.assertEqual(total["congestion"], {"trials": 1, "right": 1, "other": 0, "detected": 1, "detected_within_32": 0, "alarm_after_puts_median": 33, "alarm_after_puts_most": 33,
                                               "alarm_after_s_median": 4.2, "alarm_after_s_most": 4.2, "alarm_after_calls_median": 420, "alarm_after_calls_most": 420})

    def test_reads_a_trace(self):
        rows = "7000000000,ab,3,AllReduce,9,512,default,-,1,2,3,0,1,true,0,,,,,false\n8500000000,ab,4,put,9,512,gin/gdaki/1,-,5,10,,,,,1,0,1,2,unknown,\n"
        self.assertEqual(list(read_puts((HEAD + rows).splitlines(True))), [(8.0, ("ab", "0", "1", "2"), True, "unknown", 4)])

    def test_numbers_say_when_a_put_was_made(self):
        rows = "".join(f"{at}000000000,ab,{n},put,9,512,gin/gdaki/1,-,5,10,,,,,0,0,1,2,none,\n" for at, n in ((8, 100), (9, 150), (9, 200), (9, 125), (10, 300)))
        self.assertEqual([p[0] for p in read_puts((HEAD + rows).splitlines(True))], [7.5, 8.0, 8.5, 7.75, 9.5])

    def test_tells_what_was_in_force(self):
        def table(trial, fault, *chosen):
            return {"trial": trial, "fault": fault, "table": {"buckets": [{"comm": "c", "collective": "AllReduce", "min_bytes": b, "choice": c} for b, c in chosen]}}

        lines = choices([table(0, "none", (1024, "gin/gdaki/1/c1")), table(1, "congestion", (1024, "Ring/LL/2"), (4096, "default")), table(2, "none", (1024, "gin/gdaki/1/c1"), (4096, "default"))])
        self.assertEqual([(x["fault"], x["sizes"], x["over_gin"], x["changed"]) for x in lines], [("none", 1, 1, 0), ("congestion", 2, 0, 1), ("none", 2, 1, 1)])
        self.assertEqual(lines[1]["choices"], {"AllReduce 1024": "Ring/LL/2", "AllReduce 4096": "default"})


# Stands in for bin/dynamiccld: bench is a program that calls until it is ended, table what its daemon says: a choice for each state of the links.
DAEMON = """
case "$1" in
bench)
  mkdir -p "$TMPDIR/dynamiccl-bench-$$-x/1/run"
  while [ "$1" != --trace ]; do shift; done
  printf '%s' "$TRACE_IS" >"$2"
  [ "$3" = --out ] && echo '{"kind": "head", "machine": {}}' >"$4"
  for ((i = 0; i < 150; i++)); do sleep 0.1; [ ! -e "$TMPDIR/told" ] || [ "$(wc -l <"$TMPDIR/told")" -lt 5 ] || exit 0; done ;;
table)
  [ -d "$3" ] || exit 1
  echo >>"$TMPDIR/told"
  case "$(cat "$DYNAMICCL_CARRIER_FAULTS")" in gbs*) choice=Ring/LL/2 ;; *) choice=gin/gdaki/1/c1 ;; esac
  printf '{"source": "d",\n "buckets": [{"collective": "AllReduce", "min_bytes": 1024, "choice": "%s"}]}\n' "$choice" ;;
esac
"""


class Script(Tree):
    def test_says_what_was_in_force_at_the_end_of_each_part(self):
        for name in ("gin_trials.sh", "gin_trials_count.py", "gin_common.sh"):
            shutil.copy(os.path.join(HERE, name), self.path("nccltuner/gputest"))
        for name in ("libnccl-net-dynamiccl-carrier.so", "dynamiccl-gin.fatbin", "nccl"):
            self.script("lib/" + name, "")
        self.script("tools/python3", f'case "$1" in -c) echo 22809 ;; *) exec {sys.executable} "$@" ;; esac')
        self.script("bin/dynamiccld", DAEMON)
        os.mkdir(self.path("tmp"))
        row = "7000000000,ab,3,put,9,512,gin/gdaki/1,-,5,10,,,,,0,0,1,2,none,\n"
        done = self.start("gin_trials.sh", self.path("out.jsonl"), TMPDIR=self.path("tmp"), NCCL_LIB=self.path("lib/nccl"), TRIALS="2", QUIET="1", FAULT="1", WARM="1", TRACE_IS=HEAD + row)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in self.read("out.jsonl").splitlines()]
        self.assertEqual(lines[0], {"kind": "head", "machine": {}})
        self.assertEqual([(x["trial"], x["fault"], x["over_gin"], x["changed"]) for x in lines[1:] if x["figure"] == "gin trial choices"],
                         [(0, "none", 1, 0), (1, "backend-fallback", 1, 0), (2, "none", 1, 0), (3, "congestion", 0, 1), (4, "none", 1, 1)])
        self.assertEqual([x["fault"] for x in lines[1:] if x["figure"] == "gin trial"], ["none", "backend-fallback", "none", "congestion", "none"])


if __name__ == "__main__":
    unittest.main()
