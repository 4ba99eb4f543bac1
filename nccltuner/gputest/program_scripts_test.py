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

# Stands in for bin/dynamiccld: of `run` it prints what the real one would say, and runs the command; `calibrate` leaves a store.
DAEMON = """
if [ "$1" = calibrate ]; then
  echo "$*" >>"$0.log"
  while [ "$1" != --store ]; do shift; done
  [ -n "${UNFIT:-}" ] || echo >"$2"
  exit ${UNFIT:-0}
fi
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

    def test_one_gpu_that_ranks_share(self):
        self.script("tools/nvidia-smi", 'case "$*" in *query*) echo "NVIDIA Test, 580.1" ;; *) echo "GPU 0" ;; esac')
        self.script("tools/nvidia-cuda-mps-control", f'[ $# = 1 ] || read -r word; echo "${{word:-$*}}" >>{self.path("service")}')
        self.script("tools/torchrun", f'echo "$NODES $CUDA_DEVICE_MAX_CONNECTIONS ${{CUDA_MPS_PIPE_DIRECTORY:+shared}} $*" >>{self.path("calls")}\n' + PROGRAM)
        code, lines, said = self.run_script("program_fallbacks.sh", MPS="1", RANKS="2")
        self.assertEqual((code, [(x["gpus"], x["nodes"], x["pass"]) for x in lines]), (0, 7 * [(1, 2, True)]), said)
        self.assertTrue(all(x.startswith("2 16 shared --nproc-per-node 2 --no-python ") and "examples/ddp.py" in x for x in self.read("calls").splitlines()))
        self.assertEqual(self.read("service").split(), ["-d", "quit"])

    def test_an_old_nccl_behind_the_library(self):
        # What run does to the environment of a program, in short; the old NCCL is what a user has set before.
        self.script("bin/dynamiccld", f"""echo "$LD_PRELOAD" >>{self.path("before")}
while [ "$1" != -- ]; do shift; done; shift
OURS=1 exec "$@\"""")
        self.script("tools/program", '[ -z "$OURS" ] || [ "${LD_PRELOAD##*/}" != old.so ] || echo "NCCL WARN DynamICCL: NCCL 2.26: running plain NCCL"')
        with open(self.path("old.so"), "w"):
            pass
        _, lines, _ = self.run_script("program_fallbacks.sh", PROGRAM="program", OLD_NCCL=self.path("old.so"))
        self.assertEqual((lines[-1]["case"], lines[-1]["pass"]), ("an old NCCL", True))
        self.assertEqual(self.read("before").splitlines()[-1], self.path("old.so"))  # before run, not behind it

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

    def test_decode_calibrates_first(self):
        with open(self.path("newer.so"), "w"):
            pass
        code, _, said = self.run_script("program_decode.sh", self.path("out"), REPEAT="1", CALIBRATE="1", NCCL_LIB=self.path("newer.so"))
        self.assertEqual(code, 0, said)
        daemon = self.read("bin/dynamiccld.log").splitlines()
        self.assertRegex(daemon[0], f"^calibrate --store /tmp/dyn-decode.*/store.db --nccl-lib {self.path('newer.so')} --ranks 2$")
        self.assertFalse([x for x in daemon if "--no-graph" in x])  # nothing is learnt from steps
        code, lines, said = self.run_script("program_decode.sh", self.path("other"), REPEAT="1", CALIBRATE="1", UNFIT="3")
        self.assertEqual((code, os.path.exists(self.path("other"))), (3, False), said)

    def test_collectives_of_pytorch(self):
        self.script("tools/python3", f"""case "$*" in *nvidia.nccl*) echo {self.root}/nccl ;; *) exec {sys.executable} "$@" ;; esac""")
        self.script("tools/torchrun", f"""echo "${{UNDER:-plain}} $*" >>{self.path("calls")}
us=10; [ -z "${{UNDER:-}}" ] || us=4
for graph in true false; do echo '{{"program": "collectives", "collective": "AllReduce", "bytes": 1024, "graph": '$graph', "median_us": '$us'}}'; done""")
        code, _, said = self.run_script("program_torch.sh", self.path("out"), REPEAT="2", COLLECTIVES_FLAGS="--kib 1,4")
        self.assertEqual(code, 0, said)
        self.assertRegex(self.read("bin/dynamiccld.log").splitlines()[0],
                         f"^calibrate --store /tmp/dyn-torch.*/store.db --nccl-lib {self.root}/nccl/lib/libnccl.so.2 --ranks 2 --collectives AllReduce,AllGather,ReduceScatter$")
        calls = self.read("calls").splitlines()
        self.assertEqual(calls, [f"{x} --nproc-per-node 2 examples/collectives.py --kib 1,4" for x in ("plain", "run", "run", "plain")])
        out = [json.loads(line) for line in self.read("out").splitlines()]
        self.assertEqual([(x["key"], x["base_median"], x["arm_median"]) for x in out if "base_median" in x],
                         [({"collective": "AllReduce", "bytes": 1024, "graph": graph}, 10, 4) for graph in (True, False)])
        self.assertIn("'graph': True}: 10.0 and 4.0, 2.5 [2.5, 2.5]", said)
        self.assertNotEqual(self.run_script("program_torch.sh", self.path("other"), UNFIT="3")[0], 0)
        with open(self.path("store"), "w"):
            pass
        self.run_script("program_torch.sh", self.path("other"), REPEAT="1", STORE=self.path("store"))
        self.assertEqual(sum(x.startswith("calibrate") for x in self.read("bin/dynamiccld.log").splitlines()), 2)

    def test_nodes_are_dealt_in_blocks(self):
        def hostid(rank, nodes):
            return subprocess.run(["bash", os.path.join(HERE, "program_node.sh"), "bash", "-c", "echo ${NCCL_HOSTID:-own}"], capture_output=True,
                                  text=True, check=True, timeout=30, env={"PATH": os.environ["PATH"], "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "4", "NODES": nodes}).stdout.strip()

        self.assertEqual([hostid(r, "2") for r in range(4)], ["program-node0", "program-node0", "program-node1", "program-node1"])
        self.assertEqual([hostid(r, "1") for r in range(4)], ["own"] * 4)


    def test_fused(self):
        self.script("tools/torchrun", f"""echo "${{UNDER:-plain}} $FUSED_NORM $*" >>{self.path("calls")}
us=9; [ "$FUSED_NORM" != fused ] || us=3
echo '{{"tokens": 1, "hidden": 4096, "graph": true, "median_us": '$us', "wrong": 0, "missing_kernels": '${{MISSING:-0}}'}}'""")
        code, _, said = self.run_script("program_fused.sh", self.path("out"), REPEAT="1", HIDDEN="4096", TOKENS="1")
        self.assertEqual(code, 0, said)
        self.assertEqual([x.split(" --")[0] for x in self.read("calls").splitlines()], ["plain one-by-one", "run one-by-one", "run fused"])
        out = [json.loads(line) for line in self.read("out").splitlines()]
        self.assertEqual([(x["comparison"], x["speedup"]) for x in out if "comparison" in x], [("unfused against plain", 1.0), ("fused against plain", 3.0)])
        code, _, _ = self.run_script("program_fused.sh", self.path("other"), REPEAT="1", HIDDEN="4096", ARMS="plain=plain,FUSED_NORM=one-by-one fused=run,FUSED_NORM=fused,MISSING=1")
        out = [json.loads(line) for line in self.read("other").splitlines()]
        self.assertEqual((code, [x["failed"] for x in out if "arm" in x], sum("comparison" in x for x in out)), (1, [[], ["missing_kernels is 1"]], 0))


# Stands in for a rank that program_kill.py starts: it goes round until rank 1 is dead, and then does all but what FORGETS says.
KILLED = """
echo "{\\"ready\\": true, \\"nccl\\": \\"2.28.9\\", \\"kernels\\": $([ "$FORGETS" = kernels ] && echo 0 || echo 21)}"
[ "$RANK" != 1 ] || { echo $$ >"$PLACE.new"; mv "$PLACE.new" "$PLACE"; exec sleep 60; }
until [ -e "$PLACE" ]; do sleep 0.01; done
pid=$(cat "$PLACE")
while grep -qs '^State:.[^Z]' /proc/$pid/status; do sleep 0.01; done
[ "$FORGETS" != hear ] || sleep 60
[ "$FORGETS" = name ] || echo "dynamiccl: rank 1, process $pid, is dead: kernels of this communicator of $WORLD_SIZE ranks give up" >&2
[ "$FORGETS" != wait ] || exit 6
echo '{"error": "NCCL error 6"}'
[ "$FORGETS" = drain ] || echo '{"drained": true}'
read -r x
exit 3
"""


class Kill(Tree):
    def setUp(self):
        super().setUp()
        self.script("rank", KILLED)
        self.script("tools/nvidia-smi", 'case "$*" in *utilization*) echo "${BUSY:-0}"; echo 0 ;; *query*) echo "NVIDIA Test, 580.1" ;; *) echo; echo; echo ;; esac')

    def kill(self, forgets="", **env):
        """(exit code, the line)"""
        if os.path.exists(self.path("place")):
            os.remove(self.path("place"))
        done = subprocess.run([sys.executable, self.path("nccltuner/gputest/program_kill.py"), "--ranks", "3", "--kill", "1", "--after", "0.1", "--bound", "1", "--", self.path("rank")],
                              capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": self.path("tools") + ":" + os.environ["PATH"],
                                                                              "FORGETS": forgets, "PLACE": self.path("place"), **env})
        return done.returncode, json.loads(done.stdout.splitlines()[-1])

    def test_survivors_have_their_error(self):
        code, line = self.kill()
        self.assertEqual((code, line["pass"], line["why"], line["killed"], line["kernels"], line["utilization"], line["nccl"]), (0, True, "", 1, [21, 21, 21], [0, 0], "2.28.9"))
        self.assertEqual([(s["rank"], s["error"], s["error_s"] < 1, s["named_s"] < 1) for s in line["survivors"]], [(r, "NCCL error 6", True, True) for r in (0, 2)])
        self.assertEqual(line["alive_when_looked_at"], [0, 2])

    def test_a_process_that_ends_has_its_error_too(self):
        code, line = self.kill("wait")
        self.assertEqual((code, line["alive_when_looked_at"], line["slowest_s"] < 1), (0, [], True))

    def test_what_is_missing_is_found(self):
        for forgets, why in (("hear", "rank 0: no error within 1 s"), ("name", "did not say that rank 1 died"), ("drain", "has not ended what was enqueued"),
                             ("kernels", "our kernels did not run")):
            code, line = self.kill(forgets)
            self.assertEqual((code, line["pass"]), (1, False), forgets)
            self.assertIn(why, line["why"])

    def test_a_gpu_that_spins(self):
        with open(self.path("nccltuner/gputest/program_kill.py")) as f:
            text = f.read()
        with open(self.path("nccltuner/gputest/program_kill.py"), "w") as f:
            f.write(text.replace("IDLE_S = 15", "IDLE_S = 0.2"))
        code, line = self.kill(BUSY="100")
        self.assertEqual((code, line["why"], line["utilization"]), (1, "GPUs have something to do", [100, 0]))

    def test_every_mode(self):
        self.script("tools/python3", f"""case "$*" in
  *program_kill.py*) echo "$UNDER $TORCH_NCCL_ASYNC_ERROR_HANDLING $*" >>{self.path("calls")}; case "$*" in *"$FAILS"*) exit 1 ;; esac ;;
esac""")
        done = self.start("program_kill.sh", self.path("out"), FAILS="none")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([(x.split()[1], x.split()[-1], x.split(" --ranks ")[1][:11]) for x in self.read("calls").splitlines()],
                         [("0", "calls", "3 --kill=-1"), ("0", "graph", "3 --kill=-1"), ("3", "watchdog", "3 --kill=-1")])
        self.assertIn("calibrate --store", self.read("bin/dynamiccld.log"))
        done = self.start("program_kill.sh", self.path("out"), FAILS="graph")
        self.assertEqual((done.returncode, len(self.read("calls").splitlines())), (1, 6))  # the others are tried all the same


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

    def stored(self, figures, **env):
        """(exit code, how it was calibrated, how each arm's nccl-tests was called, runs of the driver)"""
        self.script("bin/dynamiccld", f"""if [ "$1" = calibrate ]; then
  echo "${{DYNAMICCL_NO_KERNELS:-0}} $*" | sed 's| --store [^ ]*/| |' >>{self.path("calibrated")}
  while [ "$1" != --store ]; do shift; done
  echo >"$2"; exit
fi
while [ "$1" != -- ]; do shift; done; shift
exec "$@\"""")
        with open(self.path("source/src/Makefile"), "w") as f:
            f.write(f"""$(BUILDDIR)/%_perf:
	@printf '#!/bin/sh\\necho "$${{DYNAMICCL_NO_KERNELS:-0}} $$*" >>{self.path("calls")}\\ncat {self.path("table")}\\n' >$@ && chmod +x $@
""")
        lib = self.path("newer.so")
        with open(lib, "w"):
            pass
        done = self.start("program_nccltests.sh", self.path("out"), **self.env, TESTS="all_reduce", REPEAT="1", FIGURES=figures, NCCL_LIB=lib, **env)
        runs = [json.loads(line) for line in self.read("out").splitlines()] if os.path.exists(self.path("out")) else []
        return (done.returncode, self.read("calibrated").replace(self.root, "").splitlines(), self.read("calls").splitlines(),
                [(x["figure"], x["arm"], x["variables"]) for x in runs if "arm" in x])

    def test_registered_buffers(self):
        code, calibrated, calls, runs = self.stored("registered registered-graph calibrated")
        self.assertEqual((code, calibrated), (0, [f"0 calibrate --buffers {x} {x}-1.db --nccl-lib /newer.so" for x in ("registered", "plain")]))
        self.assertEqual([("-R 2" in x, "-G 50" in x) for x in calls], 2 * [(True, False)] + 2 * [(True, True)] + 2 * [(False, False)])
        self.assertEqual([(x, y) for x, y, _ in runs[:2]], [("nccl-tests, registered", "plain"), ("nccl-tests, registered", "stored")])

    def test_registered_otherwise(self):
        code, calibrated, calls, _ = self.stored("registered", REGISTER="1")
        self.assertEqual((code, calibrated[0].split()[3], "-R 1" in calls[0]), (0, "plain", True))
        self.assertEqual(self.start("program_nccltests.sh", self.path("out"), **self.env, REGISTER="3").returncode, 2)

    def test_everything_calibrated_at_once(self):
        _, calibrated, _, _ = self.stored("registered calibrated", BUFFERS="all")
        self.assertEqual(calibrated, ["0 calibrate --buffers all all-1.db --nccl-lib /newer.so"])

    def test_nccls_own_choices_alone(self):
        code, calibrated, calls, runs = self.stored("nccl-choices-graph calibrated", ARMS="")
        self.assertEqual((code, [x.split()[0] for x in calibrated]), (0, ["1", "0"]))
        self.assertEqual([x.split()[0] for x in calls], ["0", "1", "0", "0"])
        self.assertEqual(runs[1], ("nccl-tests, nccl-choices-graph", "nccl", {"DYNAMICCL_NO_KERNELS": "1"}))

    def test_other_arms(self):
        code, _, calls, runs = self.stored("calibrated", ARMS="plain nccl=run,DYNAMICCL_NO_KERNELS=1,--no-explore ours=run,--no-explore")
        self.assertEqual((code, [x.split()[0] for x in calls], [x[1] for x in runs]), (0, ["0", "1", "0"], ["plain", "nccl", "ours"]))


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
        self.script("bin/dynamiccld", '[ "$1" != serve ] || exec sleep 30; exit 1')
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

    def test_more_ranks_than_gpus_are_asked_for_by_mps(self):
        code, calls, said = self.mix("cases.sh", self.path("out"), RANKS="4")
        self.assertEqual((code, calls), (2, []))
        self.assertIn("RANKS=4, and there are 2 GPUs: MPS=1", said)


class Live(Tree):
    def setUp(self):
        super().setUp()
        shutil.copy(os.path.join(HERE, "live.sh"), self.path("nccltuner/gputest"))
        self.script("bin/dynamiccld", """echo "${CUDA_MPS_PIPE_DIRECTORY:+mps }${CUDA_DEVICE_MAX_CONNECTIONS:--} $*" >>"$0.log"
[ "$1" != calibrate ] || echo >"$5"
[ "$5" != 2 ]""")
        self.script("tools/nvidia-cuda-mps-control", 'exit 0')

    def test_ranks_that_share_gpus_over_sockets_alone(self):
        done = self.start("live.sh", self.path("out"), MPS="1", RANKS="4", STEPS="sockets nvlink")
        self.assertEqual(done.returncode, 0, done.stderr)
        sockets, nvlink = self.read("bin/dynamiccld.log").splitlines()
        self.assertTrue(sockets.startswith(f"mps 10 bench --out {self.path('out')} --nodes 4 --ranks 4 --arms plain,plain+X=1,run "), sockets)
        self.assertTrue(nvlink.startswith(f"- bench --out {self.path('out')} --time gpu "), nvlink)

    def calls(self, **env):
        done = self.start("live.sh", self.path("out"), **env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [x.replace(f"bench --out {self.path('out')} ", "") for x in self.read("bin/dynamiccld.log").splitlines()]

    def test_other_steps_on_shared_gpus(self):
        for nodes, steps in (({}, 4), ({"NODES": "1"}, 1)):
            calls = self.calls(MPS="1", RANKS="4", TIME="45", STEPS="cpu-load watching host graphs", **nodes)
            self.assertEqual([x.split(" --arms ")[0] for x in calls],
                             [f"mps {queues} --nodes {steps} --ranks 4" for queues in (10, 10, 6, 8)])
            os.remove(self.path("bin/dynamiccld.log"))
        self.assertIn("--phases quiet:30s,cpu:60s,quiet:30s", calls[0])
        self.assertIn("plain,plain+X=1,plugin,observe,run --time host", calls[2])

    def test_without_sharing(self):
        calls = self.calls(STEPS="cpu-load watching nccl-choices calibrated calibrated-registered", NCCL_LIB="/n", TIME="45")
        self.assertEqual([x.split("--nccl-lib /n")[0] for x in calls[1:3]], ["- bench "] * 2)
        self.assertIn("--nodes 2 ", calls[0])
        self.assertNotIn("--nodes", calls[1])
        self.assertIn("--arms plain,plain+X=1,run+DYNAMICCL_NO_KERNELS=1 --phases quiet:45s --sizes 1K,16K,64K,256K,1M,4M,16M,64M,256M", calls[2])
        for buffers, (calibrate, bench) in (("plain", calls[3:5]), ("registered", calls[5:7])):
            self.assertRegex(calibrate, f"^- calibrate --buffers {buffers} --store .*/store.db --nccl-lib /n$")
            self.assertRegex(bench, f"--buffers {buffers} --time graph --arms plain,plain.X=1,run.DYNAMICCL_NO_EXPLORE=1 --store ")

    def test_a_step_that_fails_and_one_that_is_not_known(self):
        done = self.start("live.sh", self.path("out"), STEPS="socket-settings host")  # bench fails where there are two nodes, twice
        self.assertEqual((done.returncode, len(self.read("bin/dynamiccld.log").splitlines())), (1, 3), done.stderr)
        self.assertEqual(self.start("live.sh", self.path("out"), STEPS="nothing").returncode, 2)


if __name__ == "__main__":
    unittest.main()
