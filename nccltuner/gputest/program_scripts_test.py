"""Tests of the program_*.sh scripts, of nccltests.sh, cases.sh and stress.sh without a GPU: in a copy of the tree, what they call are shell scripts."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from program_test import TABLE

# Stands in for bin/dynamiccld: of `run` it prints what the real one would say, and runs the command.
DAEMON = """
case "$*" in
  *Makefile/run*) echo "dynamiccld: running as plain NCCL: directory Makefile/run" >&2 ;;
  *nonexistent*) echo "dynamiccld: running as plain NCCL: libnccl-tuner-dynamiccl.so and x.so are not in /nonexistent" >&2 ;;
esac
[ -z "${NCCL_ALGO:-}" ] || echo "dynamiccld: NCCL_ALGO=$NCCL_ALGO is yours and stays: nothing is tuned" >&2
[ -z "${NCCL_TUNER_PLUGIN:-}" ] || echo "dynamiccld: NCCL_TUNER_PLUGIN=$NCCL_TUNER_PLUGIN is yours and stays" >&2
echo "$*" >>"$0.log"
while [ "$1" != -- ]; do shift; done
shift
UNDER=run exec "$@"
"""
# Stands in for NCCL with the plugin.
PROGRAM = """
case "${NCCL_TUNER_PLUGIN:-}" in
  */nonexistent/*) echo "NCCL INFO TUNER/Plugin: Could not find: $NCCL_TUNER_PLUGIN" ;;
  ?*) echo "NCCL INFO DynamICCL: no daemon in $DYNAMICCL_DIR"; [ -z "${NCCL_ALGO:-}" ] || echo "NCCL WARN DynamICCL: NCCL_ALGO=$NCCL_ALGO is set: it is respected" ;;
esac
echo "NCCL version 2.28.9+cuda13.0"
exit ${CODE:-0}
"""


class Tree(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        os.makedirs(self.path("nccltuner/gputest"))
        for name in os.listdir(HERE):
            if name.startswith(("program_", "nccltests")) and not name.endswith("_test.py"):
                shutil.copy(os.path.join(HERE, name), self.path("nccltuner/gputest"))
        os.makedirs(self.path("kernels/bench"))
        shutil.copy(os.path.join(HERE, "../../kernels/bench/mps.sh"), self.path("kernels/bench"))
        self.script("bin/dynamiccld", DAEMON)
        self.script("tools/nvidia-smi", 'case "$*" in *query*) echo "NVIDIA Test, 580.1"; echo "NVIDIA Test, 580.1" ;; *) echo "GPU 0"; echo "GPU 1" ;; esac')

    def path(self, *names):
        return os.path.join(self.root, *names)

    def script(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w") as f:
            f.write("#!/usr/bin/env bash\n" + text + "\n")
        os.chmod(self.path(name), 0o700)

    def read(self, name):
        with open(self.path(name)) as f:
            return f.read()

    def start(self, name, *args, **env):
        return subprocess.run(["bash", self.path("nccltuner/gputest", name), *args], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "PATH": self.path("tools") + ":" + os.environ["PATH"], "PROGRAM_COMMIT": "c", **env})

    def run_script(self, name, *args, **env):
        """(exit code, JSON lines of standard output, standard error)"""
        done = self.start(name, *args, **env)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


class Fallbacks(Tree):
    def test_every_case(self):
        self.script("tools/program", PROGRAM)
        code, lines, said = self.run_script("program_fallbacks.sh", PROGRAM="program")
        self.assertEqual((code, [x["case"] for x in lines if not x["pass"]]), (0, []), said)
        self.assertEqual(len(lines), 7)
        self.assertEqual({(x["gpus"], x["nccl"], x["commit"]) for x in lines}, {(2, "2.28.9", "c")})

    def test_a_program_that_fails_and_a_line_that_is_not_there(self):
        self.script("tools/program", PROGRAM)
        code, lines, _ = self.run_script("program_fallbacks.sh", PROGRAM="env CODE=3 program")
        self.assertEqual((code, {(x["pass"], x["exit_code"]) for x in lines}), (1, {(False, 3)}))
        code, lines, said = self.run_script("program_fallbacks.sh", PROGRAM="true")
        self.assertEqual((code, [x["case"] for x in lines if not x["pass"]]), (1, ["no daemon", "plugin file missing", "NCCL_ALGO set, plugin"]))
        self.assertIn("not found", said)


class Programs(Tree):
    """What the scripts start, by a torchrun that notes it and prints what the examples print."""

    def setUp(self):
        super().setUp()
        self.script("tools/torchrun", f"""echo "${{UNDER:-plain}} ${{NODES:-}} $*" >>{self.path("calls")}
for shape in 8b 70b; do echo '{{"program": "fake", "shape": "'$shape'", "batch": 1, "positions": 1024, "median_us": 10, "nccl": "2.28.9"}}'; done""")

    def test_training(self):
        code, lines, said = self.run_script("program_ddp.sh", self.path("out"), PROGRAMS="ddp-no-overlap fsdp", REPEAT="2")
        self.assertEqual((code, lines), (0, []), said)
        calls = self.read("calls").splitlines()
        self.assertEqual(len(calls), 2 * 2 * (1 + 2 * 2))  # transports, programs, one to learn and twice two arms
        self.assertEqual(calls[0], "run 1 --nproc-per-node 2 --no-python nccltuner/gputest/program_node.sh python3 examples/ddp.py "
                                   "--steps 60 --warmup 40 --no-overlap --check")
        self.assertEqual(calls[-1].split()[1], "2")  # sockets: a node a GPU
        out = [json.loads(line) for line in self.read("out").splitlines()]
        self.assertEqual({x["figure"] for x in out}, {f"{p} step, {t}" for p in ("ddp-no-overlap", "fsdp") for t in ("nvlink, 1 nodes", "socket, 2 nodes")})
        self.assertEqual(sum("comparison" in x for x in out), 4)

    def test_training_on_shared_gpus(self):
        self.script("tools/nvidia-cuda-mps-control", f'[ $# = 1 ] || read -r word; echo "${{word:-$*}}" >>{self.path("service")}')
        self.script("tools/torchrun", f"""echo "$NODES ${{CUDA_DEVICE_MAX_CONNECTIONS:-}} ${{CUDA_MPS_PIPE_DIRECTORY:+shared}} $*" >>{self.path("calls")}
echo '{{"program": "fake", "median_us": 10, "nccl": "2.28.9"}}'""")
        code, lines, said = self.run_script("program_ddp.sh", self.path("out"), PROGRAMS="ddp", REPEAT="1", TRANSPORTS="socket nvlink", MPS="1", RANKS="8")
        self.assertEqual((code, lines), (0, []), said)
        calls = self.read("calls").splitlines()
        self.assertEqual([x.split(" --no-python")[0] for x in calls], 3 * ["8 16 shared --nproc-per-node 8"] + 3 * ["1   --nproc-per-node 2"])
        self.assertEqual(self.read("service").split(), ["-d", "quit"])

    def test_pingpong(self):
        code, lines, said = self.run_script("program_pingpong.sh", self.path("out"), REPEAT="2", PINGPONG="--kib 64", ARMS="plain none=run,DYNAMICCL_SOCKET_THREADS=0")
        self.assertEqual((code, lines), (0, []), said)
        self.assertEqual(set(self.read("calls").splitlines()),
                         {f"{x} 2 --nproc-per-node 2 --no-python nccltuner/gputest/program_node.sh python3 examples/pingpong.py --kib 64" for x in ("plain", "run")})
        self.assertEqual(["comparison" in json.loads(line) for line in self.read("out").splitlines()], 4 * [False] + [True])

    def test_overlap(self):
        code, lines, said = self.run_script("program_overlap.sh", self.path("out"), LEARNERS="lstm", REPEAT="1")
        self.assertEqual((code, lines), (0, []), said)
        daemons = self.read("bin/dynamiccld.log").splitlines()
        for reward in ("call", "exposed"):
            self.assertEqual(sum(f"--learner lstm --reward {reward} --explore-budget 10% -- env NODES=" in x for x in daemons), 4)
        self.assertEqual(sum("--no-overlap" in x for x in self.read("calls").splitlines()), 2 * 3)  # transports, arms
        out = [json.loads(line) for line in self.read("out").splitlines()]
        self.assertEqual({x["comparison"] for x in out if "comparison" in x}, {"lstm-call against plain", "lstm-exposed against plain"})
        self.assertTrue(all("report" in x for x in out if x.get("kind") == "run"))

    def test_overlap_refuses_what_it_does_not_know(self):
        for more in ({"OVERLAP": "maybe"}, {"TRANSPORTS": "pigeon"}):
            self.assertEqual(self.run_script("program_overlap.sh", self.path("out"), **more)[0], 2)

    def test_decode(self):
        code, _, said = self.run_script("program_decode.sh", self.path("out"), REPEAT="1", ARMS="plain run stored=run,--no-explore")
        self.assertEqual(code, 2, said)  # learning left no store: nothing to start from
        self.assertIn("no file", said)
        with open(self.path("store"), "w"):
            pass
        code, _, said = self.run_script("program_decode.sh", self.path("out"), REPEAT="1", STORE=self.path("store"))
        self.assertEqual(code, 0, said)
        self.assertIn("--no-explore -- torchrun", self.read("bin/dynamiccld.log"))
        out = [json.loads(line) for line in self.read("out").splitlines()]
        self.assertEqual([(x["comparison"], x["speedup"]) for x in out if x.get("key") == {"shape": "70b", "batch": 1, "positions": 1024}],
                         [("run against plain", 1.0), ("stored against plain", 1.0)])

    def test_nodes_are_dealt_in_blocks(self):
        def hostid(rank, nodes):
            return subprocess.run(["bash", os.path.join(HERE, "program_node.sh"), "bash", "-c", "echo ${NCCL_HOSTID:-own}"], capture_output=True,
                                  text=True, check=True, timeout=30, env={"PATH": os.environ["PATH"], "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "4", "NODES": nodes}).stdout.strip()

        self.assertEqual([hostid(r, "2") for r in range(4)], ["program-node0", "program-node0", "program-node1", "program-node1"])
        self.assertEqual([hostid(r, "1") for r in range(4)], ["own"] * 4)


class Examples(unittest.TestCase):
    def test_not_a_word_about_dynamiccl(self):
        folder = os.path.join(HERE, "..", "..", "examples")
        names = [name for name in os.listdir(folder) if name.endswith(".py")]
        self.assertGreaterEqual(len(names), 3)
        for name in names:
            with open(os.path.join(folder, name)) as f:
                text = f.read()
            compile(text, name, "exec")  # PyTorch need not be here to read them
            for word in ("dynamiccl", "plugin", "NCCL_"):
                self.assertNotIn(word, text.lower() if word.islower() else text, name)


class NcclTests(Tree):
    def setUp(self):
        super().setUp()
        os.makedirs(self.path("nccl/include"))
        os.makedirs(self.path("nccl/lib"))
        os.makedirs(self.path("source/src"))
        for name in ("nccl/include/nccl.h", "nccl/lib/libnccl.so.2", "source/src/common.cu"):
            with open(self.path(name), "w"):
                pass
        with open(self.path("table"), "w") as f:
            f.write("\n".join(TABLE.splitlines()[:5]) + "\n")
        # A makefile that writes each program as a script: it notes how it was called and prints the table.
        with open(self.path("source/src/Makefile"), "w") as f:
            f.write(f"""$(BUILDDIR)/%_perf:
	@test "$(MPI) $(NVCC_GENCODE)" = "0 -arch=sm_90" && test -e $(NCCL_HOME)/include/nccl.h && test -L $(NCCL_HOME)/lib/libnccl.so
	@printf '#!/bin/sh\\necho "$$0 $$*" >>{self.path("calls")}\\ncat {self.path("table")}\\n' >$@ && chmod +x $@
""")
        self.env = {"NCCL_TESTS": self.path("source"), "NCCL_HOME": self.path("nccl"), "ARCH": "sm_90", "CUDA_HOME": self.root}

    def test_lines(self):
        code, lines, said = self.run_script("nccltests.sh", "-o", "max", **self.env, TESTS="all_reduce all_gather", GRAPH="20", MAX="1M")
        self.assertEqual((code, len(lines)), (0, 4), said)
        self.assertEqual([(x["collective"], x["in_place"], x["graph"]) for x in lines[1:3]], [("AllReduce", True, 20), ("AllGather", False, 20)])
        first = self.read("calls").splitlines()[0]
        self.assertTrue(first.endswith("all_reduce_perf -t 1 -g 2 -b 1K -e 1M -f 4 -n 100 -w 20 -G 20 -c 1 -o max"), first)
        self.run_script("nccltests.sh", **self.env, TESTS="all_reduce", THREADS="1")
        self.assertIn(" -t 2 -g 1 ", self.read("calls").splitlines()[-1])

    def test_failures(self):
        with open(self.path("table"), "w") as f:
            f.write("Test NCCL failure\n")
        code, lines, said = self.run_script("nccltests.sh", **self.env)
        self.assertEqual((code, lines), (1, []))
        self.assertIn("reduce_scatter_perf failed", said)
        for env, remedy in (({}, "git clone"), ({"NCCL_TESTS": self.root}, "is not nccl-tests"), ({**self.env, "NCCL_HOME": self.root}, "set NCCL_HOME")):
            code, _, said = self.run_script("nccltests.sh", **env)
            self.assertNotEqual(code, 0)
            self.assertIn(remedy, said)

    def test_figures(self):
        code, _, said = self.run_script("program_nccltests.sh", self.path("out"), **self.env, REPEAT="1", FIGURES="learn graph-threads")
        self.assertEqual(code, 0, said)
        out = [json.loads(line) for line in self.read("out").splitlines()]
        self.assertEqual([(x["figure"], x["arm"], x["repetition"]) for x in out if "arm" in x], [
            ("nccl-tests, learn", "run", None), ("nccl-tests, learn", "plain", 0), ("nccl-tests, learn", "run", 0),
            ("nccl-tests, graph-threads", "plain", 0), ("nccl-tests, graph-threads", "observe", 0), ("nccl-tests, graph-threads", "plugin", 0)])
        self.assertIn({"collective": "AllReduce", "bytes": 1024, "in_place": True}, [x["key"] for x in out if "comparison" in x])


# Stands in for mix: what it was told, and by which environment; results that are made wrong it notices.
MIX = """
echo "$* | ${CUDA_MPS_PIPE_DIRECTORY:+mps }${NCCL_MULTI_RANK_GPU_ENABLE:-0} ${NCCL_MAX_CTAS:--} ${CUDA_DEVICE_MAX_CONNECTIONS:--} $CUDA_VISIBLE_DEVICES" >>"$0.log"
case "$*" in *spoil*) echo WRONG; exit 1 ;; esac
"""


class Mix(Tree):
    def setUp(self):
        super().setUp()
        for name in ("cases.sh", "stress.sh", "mix_common.sh"):
            shutil.copy(os.path.join(HERE, name), self.path("nccltuner/gputest"))
        self.script("lib/libnccl-tuner-dynamiccl.so", "")
        self.script("python/nvidia/nccl/__init__.py", "")
        self.script("build/mix", MIX)
        self.script("bin/dynamiccld", '[ "$1" != serve ] || exec sleep 30; cat "$0.status"')
        self.script("tools/nvidia-cuda-mps-control", f'echo "${{1:-$(cat)}} ${{CUDA_VISIBLE_DEVICES:-all}}" >>{self.path("mps.log")}')

    def mix(self, name, *args, **env):
        """(exit code, what mix was told, standard error): nothing is tuned, so the scripts end with 1"""
        done = self.start(name, *args, PYTHONPATH=self.path("python"), MIX_BUILD=self.path("build"), CUDA_VISIBLE_DEVICES="", LD_PRELOAD="", **env)
        calls = self.read("build/mix.log").splitlines() if os.path.exists(self.path("build/mix.log")) else []
        return done.returncode, calls, done.stderr

    def test_a_rank_a_gpu(self):
        code, calls, said = self.mix("cases.sh", self.path("out"), "--only", "abort")
        out = self.path("out")
        self.assertEqual((code, calls), (1, ["random --ranks 2 --seconds 2 --spoil 20 | 0 - - 0,1", f"cases --ranks 2 --out {out} --only abort | 0 - - 0,1"]), said)
        self.assertFalse(os.path.exists(self.path("mps.log")))
        line = json.loads(self.read("out"))
        self.assertEqual((line["gpus"], line["ranks"]), (2, 2))

    def test_ranks_that_share_gpus(self):
        for ranks, told in ((4, "mps 1 8 16 0,1"), (8, "mps 1 4 16 0,1"), (16, "mps 1 2 8 0,1")):
            code, calls, said = self.mix("stress.sh", "1", self.path("out"), MPS="1", RANKS=str(ranks))
            self.assertEqual((code, calls[-1]), (1, f"random --ranks {ranks} --seconds 1 --out {self.path('out')} | {told}"), said)
        self.assertEqual(self.read("mps.log").splitlines(), ["-d all", "quit 0,1"] * 3)
        line = json.loads(self.read("out").splitlines()[-1])
        self.assertEqual((line["gpus"], line["ranks"]), (2, 16))

    def test_what_ran_is_accounted_for(self):
        ran = {"chosen": 70, "default": 20, "overruled": 0, "not_known": 3, "aggregated": 7, "disagreed": 0}
        core = {"groups": 100, "incomplete": 2, "disagreed": 0, "overruled": 0, "slow": 1, "ran": ran}
        for overruled, missing, want, says in ((0, 0, 0, ""), (1, 0, 1, "group_calls_overruled is 1"), (0, 1, 1, "not accounted for")):
            core.update(overruled=overruled, groups=100 + missing, ran={**ran, "chosen": 70 - overruled, "overruled": overruled})
            with open(self.path("bin/dynamiccld.status"), "w") as f:
                json.dump({"samples": 400, "publications": 9, "comms": [], "core": core}, f, indent=2)
            code, _, said = self.mix("cases.sh", self.path("out"))
            line = json.loads(self.read("out").splitlines()[-1])
            self.assertEqual((code, line["exit"], line["group_calls_incomplete"], line["ran_chosen"], line["ran_not_known"], line["ran_aggregated"]),
                             (want, 0, 2, 70 - overruled, 3, 7), said)
            self.assertIn(says, said)

    def test_more_ranks_than_gpus_are_asked_for_by_mps(self):
        code, calls, said = self.mix("cases.sh", self.path("out"), RANKS="4")
        self.assertEqual((code, calls), (2, []))
        self.assertIn("RANKS=4, and there are 2 GPUs: MPS=1", said)


class Live(Tree):
    def setUp(self):
        super().setUp()
        shutil.copy(os.path.join(HERE, "live.sh"), self.path("nccltuner/gputest"))
        self.script("bin/dynamiccld", 'echo "${CUDA_MPS_PIPE_DIRECTORY:+mps }${CUDA_DEVICE_MAX_CONNECTIONS:--} $*" >>"$0.log"; [ "$5" != 2 ]')
        self.script("tools/nvidia-cuda-mps-control", 'exit 0')

    def test_ranks_that_share_gpus_over_sockets_alone(self):
        done = self.start("live.sh", self.path("out"), MPS="1", RANKS="4", STEPS="sockets nvlink")
        self.assertEqual(done.returncode, 0, done.stderr)
        sockets, nvlink = self.read("bin/dynamiccld.log").splitlines()
        self.assertTrue(sockets.startswith(f"mps 10 bench --out {self.path('out')} --nodes 4 --ranks 4 --arms plain,plain+X=1,run "), sockets)
        self.assertTrue(nvlink.startswith(f"- bench --out {self.path('out')} --time gpu "), nvlink)

    def test_a_step_that_fails_and_one_that_is_not_known(self):
        done = self.start("live.sh", self.path("out"), STEPS="socket-settings host")  # bench fails where there are two nodes, twice
        self.assertEqual((done.returncode, len(self.read("bin/dynamiccld.log").splitlines())), (1, 3), done.stderr)
        self.assertEqual(self.start("live.sh", self.path("out"), STEPS="nothing").returncode, 2)


if __name__ == "__main__":
    unittest.main()
