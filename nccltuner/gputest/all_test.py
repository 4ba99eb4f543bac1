"""Tests of samples.sh and all.sh without a GPU: what they call are shell scripts."""
import json
import os
import shutil
import unittest

from program_scripts_test import HERE, Tree

# Stands in for sweep: two choices, whose samples are ordered as their events are, or with SWAPPED=1 the other way round.
SWEEP = """
echo "$*" >>"$0.log"
for last; do :; done
while [ "$1" != --out ]; do shift; done
base=${2%.csv}
[ -z "${SWAPPED:-}" ] && set -- 10 20 || set -- 20 10
cat >"$base.points.jsonl" <<END
{"outcome": "ok", "collective": "AllReduce", "bytes": 1024, "action": "default", "median_us": 10, "sampled_us": $1}
{"outcome": "ok", "collective": "AllReduce", "bytes": 1024, "action": "Ring/LL/4", "median_us": 20, "sampled_us": $2}
END
echo '{"identity": {"machine": "m", "nccl": "2.28.9", "nranks": 2, "nnodes": 1, "transport": "nvlink", "condition": "", "driver": "d"}, "date": "2026-01-01", "program": "c"}' >"$base.json"
"""


class Scripts(Tree):
    def setUp(self):
        super().setUp()
        for name in ("samples.sh", "samples_check.py", "all.sh"):
            shutil.copy(os.path.join(HERE, name), self.path("nccltuner/gputest"))
        self.script("bin/dynamiccld", SWEEP)

    def samples(self, *args, **env):
        done = self.start("samples.sh", self.path("out.jsonl"), *args, **env)
        return done.returncode, done.stdout + done.stderr

    def test_samples(self):
        code, said = self.samples("--rounds", "3", NODES="2", SIZES="1K")
        self.assertEqual(code, 0, said)
        self.assertIn("1 of 1 pairs of choices are ordered alike", said)
        stream, graph = self.read("bin/dynamiccld.log").splitlines()
        for line, calls in ((stream, "stream"), (graph, "graph")):
            self.assertIn(f"sweep --calls {calls} --budget 60ms --collectives AllReduce,AllGather,ReduceScatter,Broadcast,AllToAll --sizes 1K --nodes 2", line)
            self.assertTrue(line.endswith("--rounds 3"), line)
        self.assertIn("--samples", stream)
        self.assertNotIn("--samples", graph)
        lines = [json.loads(line) for line in self.read("out.jsonl").splitlines()]
        self.assertEqual((lines[-1]["points"], lines[-1]["graph_ordered_alike"]), (2, 1))
        for name in ("out.points.jsonl", "out.graphs.points.jsonl", "out.json"):
            self.assertTrue(os.path.exists(self.path(name)), name)

    def test_samples_in_another_order(self):
        code, said = self.samples(SWAPPED="1")
        self.assertEqual(code, 1, said)
        self.assertIn("0 of 1 pairs", said)

    def test_all(self):
        for name in ("kernels/bench/link.sh", "nccltuner/gputest/device_types.sh", "nccltuner/gputest/beside.sh", "nccltuner/gputest/gaps.sh", "kernels/bench/gin_trips.sh", "nccltuner/gputest/live.sh", "nccltuner/gputest/gin_live.sh",
                     "nccltuner/gputest/gin_trials.sh", "nccltuner/gputest/program_mpirun.sh", "nccltuner/gputest/program_pingpong.sh"):
            self.script(name, f'echo "{os.path.basename(name)} ${{STEPS:-}} $1" >>{self.path("calls")}; [ "${{STEPS:-}}" != "${{FAILS-none}}" ]')
        done = self.start("all.sh", self.path("results"), FAILS="")  # those without steps fail, and the others go on
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("failed: links device-types beside gaps mpirun pingpong gin-trips gin-live gin-trials", done.stderr)
        calls = [line.split()[0] for line in self.read("calls").splitlines()]
        self.assertEqual(calls, ["link.sh", "device_types.sh", "beside.sh", "gaps.sh", "live.sh", "program_mpirun.sh", "program_pingpong.sh", "gin_trips.sh", "gin_live.sh", "gin_trials.sh"])
        self.assertEqual(len(self.read("bin/dynamiccld.log").splitlines()), 4)
        os.remove(self.path("calls"))
        done = self.start("all.sh", self.path("results"), ONLY="links gin-live")
        self.assertEqual((done.returncode, len(self.read("calls").splitlines())), (0, 2), done.stderr)


if __name__ == "__main__":
    unittest.main()
