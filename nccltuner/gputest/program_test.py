"""Tests of the driver without a GPU: python3 -m unittest discover -s nccltuner/gputest -p program_test.py"""
import contextlib
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import program_bench
import program_nccltests
import program_run
from program_arms import Arm
from program_stats import compare, json_line, mean_interval, t95, wrong

# As nccl-tests 2.19 prints it (its util.cu): padded columns, N/A where checks are off.
TABLE = """# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=23203
# Collective test starting: all_reduce_perf
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
        1024           256     float     sum      -1    10.31    0.10    0.15       0     9.87    0.10    0.16       0
        4096          1024     float     sum      -1    10.52    0.39    0.58    N/A   1.1e+03    0.00    0.00       3
# Out of bounds values : 1 FAILED
"""


class Stats(unittest.TestCase):
    def test_json_line(self):
        self.assertEqual(json_line('  {"a": 1}\n'), {"a": 1})
        for line in ("", "text", "[1]", '{"a": ', "{broken}", "NCCL INFO {\"a\": 1}"):
            self.assertIsNone(json_line(line), line)

    def test_wrong_counts_what_is_there(self):
        self.assertEqual(wrong({"wrong": 2, "off": 0}, ["wrong", "off", "absent"]), ["wrong"])
        self.assertEqual(wrong({"wrong": None}, ["wrong"]), [])

    def test_student(self):
        # From any table: the last tabled value, then 40, 60 and 120 degrees of freedom, which the expansion must meet.
        for degrees, want in ((1, 12.706), (30, 2.042), (40, 2.021), (60, 2.000), (120, 1.980)):
            self.assertAlmostEqual(t95(degrees), want, delta=0.0006)

    def test_interval_by_hand(self):
        mean, half = mean_interval([1.0, 2.0, 3.0])  # standard deviation 1, two degrees of freedom
        self.assertEqual(mean, 2.0)
        self.assertAlmostEqual(half, 4.303 / math.sqrt(3), places=6)
        self.assertEqual(mean_interval([5.0]), (5.0, None))

    def runs(self, *times):
        return [{"repetition": r, "results": [{"size": k, "us": v} for k, v in result.items()]} for r, result in enumerate(times) if result]

    def test_pairs_by_repetition(self):
        # The machine gets slower by half from one repetition to the next; every pair says 1.25, so there is no doubt.
        base = self.runs({1: 100.0, 2: 10.0}, {1: 150.0, 2: 10.0}, {1: 225.0, 2: 10.0}, {1: 1.0})
        arm = self.runs({1: 80.0, 2: 10.0}, {1: 120.0, 2: 10.0}, {1: 180.0, 2: 10.0}, None)
        one, two, every = compare(base, arm, ["size"], "us")
        self.assertEqual((one["key"], one["repetitions"], one["speedup"], one["speedup_interval95"]), ({"size": 1}, 3, 1.25, [1.25, 1.25]))
        self.assertEqual(two["speedup"], 1.0)
        self.assertEqual(every["speedup"], round(math.sqrt(1.25), 4))
        self.assertEqual((every["slowest"], every["slowest_speedup"]), ({"size": 2}, 1.0))

    def test_interval_widens_with_scatter(self):
        base, arm = self.runs({1: 100.0}, {1: 100.0}, {1: 100.0}), self.runs({1: 100.0}, {1: 90.0}, {1: 80.0})
        (line,) = compare(base, arm, ["size"], "us")
        low, high = line["speedup_interval95"]
        self.assertTrue(low < 1 < line["speedup"] < high, line)

    def test_several_lines_of_a_key_are_one_value(self):
        base = [{"repetition": 0, "results": [{"us": 9.0}, {"us": 10.0}, {"us": 300.0}]}]
        arm = [{"repetition": 0, "results": [{"us": 5.0}, {"us": True}, {"us": float("nan")}, {"other": 1}]}]
        (line,) = compare(base, arm, ["size"], "us")
        self.assertEqual((line["base_median"], line["arm_median"], line["speedup_interval95"]), (10.0, 5.0, None))


class Table(unittest.TestCase):
    def test_rows(self):
        self.assertEqual([r for line in TABLE.splitlines() for r in program_nccltests.row(line)][:2], [
            {"bytes": 1024, "type": "float", "in_place": False, "time_us": 10.31, "busbw_gbs": 0.15, "wrong": 0},
            {"bytes": 1024, "type": "float", "in_place": True, "time_us": 9.87, "busbw_gbs": 0.16, "wrong": 0}])
        self.assertEqual([(r["wrong"], r["time_us"]) for r in program_nccltests.row(TABLE.splitlines()[5])], [(None, 10.52), (3, 1100.0)])

    def through(self, text):
        done = subprocess.run([sys.executable, program_nccltests.__file__, "all_reduce_perf", "20", "4", "2"], input=text, capture_output=True, text=True, timeout=30)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def test_lines(self):
        code, lines = self.through(TABLE)
        self.assertEqual((code, len(lines)), (1, 4))  # wrong elements are a failure
        self.assertEqual({k: lines[0][k] for k in ("collective", "gpus", "graph", "register", "nccl")},
                         {"collective": "AllReduce", "gpus": 4, "graph": 20, "register": 2, "nccl": "2.32.3"})
        self.assertEqual(self.through("\n".join(TABLE.splitlines()[:5]))[0], 0)
        self.assertEqual(self.through("Test NCCL failure common.cu:1\n"), (1, []))


class Arms(unittest.TestCase):
    def test_specs(self):
        arm = Arm("observe=run A=b --learner default --x 'two words'")
        self.assertEqual((arm.name, arm.kind, arm.variables, arm.options), ("observe", "run", {"A": "b"}, ["--learner", "default", "--x", "two words"]))
        arm.folder, arm.store = "/d", "/d/store.db"
        self.assertEqual(arm.command("/root", ["p", "-x"]), ["/root/bin/dynamiccld", "run", "--dir", "/d", "--store", "/d/store.db",
                                                            "--learner", "default", "--x", "two words", "--", "p", "-x"])
        for bad in ("fast", "x=", "x=fast", "x=plain --learner default"):
            with self.assertRaises(ValueError):
                Arm(bad)

    def test_environments(self):
        user = {"NCCL_TUNER_PLUGIN": "x", "NCCL_PROFILER_PLUGIN": "x", "DYNAMICCL_DIR": "x", "NCCL_NVLS_ENABLE": "1", "NCCL_DEBUG": "INFO"}
        plain = Arm("plain NCCL_PROTO=LL".replace(" ", "=plain ", 1)).environment("/root", user, {"LD_PRELOAD": "/n"})
        self.assertEqual(plain, {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NCCL_DEBUG": "INFO",
                                 "LD_PRELOAD": "/n", "NCCL_PROTO": "LL"})
        alone = Arm("nccl=run DYNAMICCL_NO_KERNELS=1").environment("/root", {**user, "DYNAMICCL_SCRATCH_MIB": "8"}, {})
        self.assertEqual({k: v for k, v in alone.items() if k.startswith("DYNAMICCL_")}, {"DYNAMICCL_NO_KERNELS": "1"})
        arm = Arm("plugin")
        arm.folder = "/d"
        env = arm.environment("/root", user, {})
        self.assertEqual((env["NCCL_TUNER_PLUGIN"], env["DYNAMICCL_DIR"]), ("/root/lib/libnccl-tuner-dynamiccl.so", "/d"))


class Run(unittest.TestCase):
    def test_what_a_launcher_leaves_behind_is_ended(self):
        with tempfile.TemporaryDirectory() as d:
            # The worker has a session of its own and does not hear SIGTERM, as a rank that hangs in a kernel.
            script = f"setsid bash -c \"trap '' TERM; echo \\$\\$ >{d}/pid; exec sleep 300\" & sleep 300"
            lines, began = [], time.monotonic()
            code, _, late = program_run.run(["bash", "-c", script], dict(os.environ), 1, f"{d}/err", lines.append, grace=10)
            self.assertTrue(late)
            self.assertEqual(code, -signal.SIGTERM)
            self.assertLess(time.monotonic() - began, 20)
            with open(f"{d}/pid") as f:
                pid = f.read().strip()
            state = ""
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                while state != "Z" and time.monotonic() - began < 30:  # dead; nobody may have asked yet how, and to die takes a moment
                    with open(f"/proc/{pid}/stat") as f:
                        state = f.read().rsplit(")", 1)[1].split()[0]
                    time.sleep(0.01)
                self.assertEqual(state, "Z")


class Driver(unittest.TestCase):
    """The driver in a copy of the tree whose bin/dynamiccld and program are shell scripts."""

    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        self.order = os.path.join(self.root, "order")
        self.script("bin/dynamiccld", """while [ "$1" != -- ]; do shift; done; shift
printf 'dynamiccld: gained\\n  AllReduce      4 MiB    Ring/LL128/32   1.20x\\n  other\\n  and 6 sizes that saved less or nothing\\n' >&2
UNDER=run exec "$@\"""")
        self.script("program", f"""echo "${{UNDER:-plain}}" >>{self.order}
echo text; echo "plugin=${{NCCL_TUNER_PLUGIN:-none}}" >&2
us=100; [ "${{UNDER:-}}" != run ] || us=80
echo '{{"program": "fake", "batch": 1, "us": '$us', "nccl": "2.28.9", "wrong": '${{WRONG:-0}}'}}'
echo '{{"program": "fake", "batch": 8, "us": 50}}'
[ "${{HANG:-}}" != "${{UNDER:-plain}}" ] || sleep 60
exit ${{CODE:-0}}""")
        before = program_bench.ROOT
        program_bench.ROOT = self.root
        self.addCleanup(setattr, program_bench, "ROOT", before)

    def script(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write("#!/usr/bin/env bash\n" + text + "\n")
        os.chmod(path, 0o700)
        return path

    def bench(self, *more):
        out = os.path.join(self.root, "out.jsonl")
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = program_bench.main(["--figure", "a figure", "--arm", "plain", "--arm", "run", "--key", "batch", "--metric", "us", "--out", out,
                                       "--logs", os.path.join(self.root, "logs"), *more, "--", os.path.join(self.root, "program")])
        with open(out) as f:
            lines = [json.loads(line) for line in f]
        return code, [x for x in lines if "arm" in x], [x for x in lines if "comparison" in x], said.getvalue()

    def test_arms_take_turns_and_are_compared(self):
        code, runs, comparisons, said = self.bench("--repeat", "3")
        self.assertEqual(code, 0, said)
        with open(self.order) as f:
            self.assertEqual(f.read().split(), ["plain", "run", "run", "plain", "plain", "run"])
        self.assertEqual([(r["arm"], r["repetition"], r["failed"]) for r in runs][:3], [("plain", 0, []), ("run", 0, []), ("run", 1, [])])
        for field in ("figure", "gpu", "commit", "nccl", "date", "command", "exit_code", "results"):
            self.assertIn(field, runs[0])
        self.assertEqual(runs[0]["nccl"], "2.28.9")
        self.assertEqual(runs[1]["report"], ["dynamiccld: gained", "  AllReduce      4 MiB    Ring/LL128/32   1.20x", "  and 6 sizes that saved less or nothing"])
        self.assertNotIn("report", runs[0])
        self.assertEqual([(c["key"], c["speedup"], c["speedup_interval95"]) for c in comparisons][:2],
                         [({"batch": 1}, 1.25, [1.25, 1.25]), ({"batch": 8}, 1.0, [1.0, 1.0])])
        self.assertIn("paired by repetition", comparisons[0]["interval"])

    def test_preparation_is_not_compared(self):
        code, runs, _, said = self.bench("--repeat", "1", "--prepare", os.path.join(self.root, "program") + " --learn")
        self.assertEqual(code, 0, said)
        self.assertEqual([(r["arm"], r["repetition"]) for r in runs], [("run", None), ("plain", 0), ("run", 0)])
        self.assertEqual(runs[0]["command"][-1], "--learn")

    def test_a_run_that_hangs_keeps_what_it_printed(self):
        code, runs, comparisons, said = self.bench("--repeat", "1", "--timeout", "2", "--arm", "slow=run HANG=run")
        self.assertEqual(code, 1)
        self.assertEqual([(r["arm"], r["timed_out"], len(r["results"])) for r in runs], [("plain", False, 2), ("run", False, 2), ("slow", True, 2)])
        self.assertIn("not done after", said)
        self.assertEqual({c["comparison"] for c in comparisons}, {"run against plain", "slow against plain"})

    def test_wrong_results_never_count(self):
        code, runs, comparisons, said = self.bench("--repeat", "1", "--arm", "bad=run WRONG=4")
        self.assertEqual(code, 1)
        self.assertEqual(runs[2]["failed"], ["wrong is 4"])
        self.assertEqual({c["comparison"] for c in comparisons}, {"run against plain"})
        self.assertIn("plugin=none", said)  # the end of its standard error

    def test_exit_code_is_a_failure(self):
        code, runs, _, _ = self.bench("--repeat", "1", "--arm", "bad=run CODE=3")
        self.assertEqual((code, runs[2]["failed"], runs[2]["exit_code"]), (1, ["exit code 3"], 3))

    def test_budget(self):
        code, runs, _, said = self.bench("--repeat", "2", "--budget", "0")
        self.assertEqual((code, runs), (1, []))
        self.assertIn("is left out", said)

    def test_wrong_use(self):
        for more in (["--arm", "plain"], ["--arm", "fast"], ["--repeat", "0"], ["--nccl-lib", "/nonexistent"], ["--store", "/nonexistent"]):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                program_bench.options(["--figure", "x", "--arm", "plain", *more, "--", "true"])


if __name__ == "__main__":
    unittest.main()
