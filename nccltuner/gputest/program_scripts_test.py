"""Tests of the program_*.sh scripts without a GPU: in a copy of the tree, what they call are shell scripts."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

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
# Stands in for NCCL with the plugin; under run that has said what it knows.
PROGRAM = """
say() { [ -n "${DYNAMICCL_QUIET:-}" ] || echo "dynamiccl: $*" >&2; }
case "${NCCL_TUNER_PLUGIN:-}" in
  */nonexistent/*) [ -n "${NCCL_DEBUG:-}" ] && echo "NCCL INFO TUNER/Plugin: Could not find: $NCCL_TUNER_PLUGIN" ||
    { [ -z "${LD_PRELOAD:-}" ] || say "NCCL_TUNER_PLUGIN=$NCCL_TUNER_PLUGIN cannot be read: running plain NCCL"; } ;;
  ?*) if [ -n "${NCCL_DEBUG:-}" ]; then echo "NCCL INFO DynamICCL: no daemon in $DYNAMICCL_DIR"
    elif [ -n "${NCCL_ALGO:-}" ]; then say "NCCL_ALGO=$NCCL_ALGO is set: it is respected"
    elif [ -f "$DYNAMICCL_DIR/daemon.lock" ]; then
      flock -n "$DYNAMICCL_DIR/daemon.lock" true && echo "nobody has the lock" || say "the daemon of $DYNAMICCL_DIR speaks shared-memory layout $(sed -n 2p "$DYNAMICCL_DIR/daemon.lock") and this library 7: running plain NCCL"
    elif [ -d "$DYNAMICCL_DIR" ]; then say "no daemon in $DYNAMICCL_DIR: running plain NCCL until one comes"
    else say "x (uid 1) cannot create the directory $DYNAMICCL_DIR: Not a directory: running plain NCCL"; fi ;;
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
            if name.startswith(("program_", "nccltests", "nvcc")) and not name.endswith("_test.py"):
                shutil.copy(os.path.join(HERE, name), self.path("nccltuner/gputest"))
        os.makedirs(self.path("kernels/bench"))
        for name in ("mps.sh", "carrier.sh", "usage.sh"):
            shutil.copy(os.path.join(HERE, "../../kernels/bench", name), self.path("kernels/bench"))
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


class Usage(unittest.TestCase):
    def test_help_and_no_option_for_a_file(self):
        scripts = []
        for path in (os.path.join(folder, name) for folder in (HERE, os.path.join(HERE, "../../kernels/bench")) for name in os.listdir(folder)):
            if path.endswith(".sh") and os.access(path, os.X_OK):
                with open(path) as f:
                    if "${1:-" in f.read():
                        scripts.append(path)
        self.assertGreater(len(scripts), 20)
        for path in scripts:
            with self.subTest(path), tempfile.TemporaryDirectory() as nowhere:
                help_, refused = (subprocess.run(["bash", path, word], capture_output=True, text=True, timeout=20, cwd=nowhere) for word in ("--help", "--nonsense"))
                self.assertEqual((help_.returncode, help_.stderr), (0, ""))
                self.assertIn(os.path.basename(path), help_.stdout)
                self.assertEqual((refused.returncode, refused.stdout), (2, ""))
                self.assertIn("no option --nonsense", refused.stderr)


class Fallbacks(Tree):
    def test_every_case(self):
        self.script("tools/program", PROGRAM)
        code, lines, said = self.run_script("program_fallbacks.sh", PROGRAM="program")
        self.assertEqual((code, [x["case"] for x in lines if not x["pass"]]), (0, []), said)
        self.assertEqual(len(lines), 12)
        self.assertEqual({(x["gpus"], x["nccl"], x["commit"]) for x in lines}, {(2, "2.28.9", "c")})

    def test_one_gpu_that_ranks_share(self):
        self.script("tools/nvidia-smi", 'case "$*" in *query*) echo "NVIDIA Test, 580.1" ;; *) echo "GPU 0" ;; esac')
        self.script("tools/nvidia-cuda-mps-control", f'[ $# = 1 ] || read -r word; echo "${{word:-$*}}" >>{self.path("service")}')
        self.script("tools/torchrun", f'echo "$NODES $CUDA_DEVICE_MAX_CONNECTIONS ${{CUDA_MPS_PIPE_DIRECTORY:+shared}} $*" >>{self.path("calls")}\n' + PROGRAM)
        code, lines, said = self.run_script("program_fallbacks.sh", MPS="1", RANKS="2")
        self.assertEqual((code, [(x["gpus"], x["nodes"], x["pass"]) for x in lines]), (0, 12 * [(1, 2, True)]), said)
        self.assertTrue(all(x.startswith("2 16 shared --nproc-per-node 2 --no-python ") and "examples/ddp.py" in x for x in self.read("calls").splitlines()))
        self.assertEqual(self.read("service").split(), ["-d", "quit"])

    def test_an_old_nccl_behind_the_library(self):
        # What run does to the environment of a program, in short; the old NCCL is what a user has set before.
        self.script("bin/dynamiccld", f"""echo "$LD_PRELOAD" >>{self.path("before")}
while [ "$1" != -- ]; do shift; done; shift
OURS=1 exec "$@\"""")
        self.script("tools/program", '[ -z "$OURS" ] || [ "${LD_PRELOAD##*/}" != old.so ] || echo "dynamiccl: NCCL 2.26: running plain NCCL; tuning needs NCCL 2.28"')
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
        self.assertEqual((code, [x["case"] for x in lines if not x["pass"]]), (1, ["no daemon", "no daemon, NCCL_DEBUG=INFO", "directory not usable", "a daemon of another layout", "plugin file missing", "plugin file missing, nothing of ours, NCCL_DEBUG=INFO", "NCCL_ALGO set, plugin"]))
        self.assertIn("0 lines", said)


    def test_a_line_twice(self):
        self.script("tools/program", PROGRAM.replace('echo "dynamiccl: $*" >&2', 'echo "dynamiccl: $*" >&2; echo "dynamiccl: $*"'))
        _, lines, _ = self.run_script("program_fallbacks.sh", PROGRAM="program")
        self.assertEqual({x["case"]: x["lines"] for x in lines if not x["pass"]},
                         {"no daemon": 2, "no daemon, DYNAMICCL_QUIET": 1, "directory not usable": 2, "a daemon of another layout": 2, "plugin file missing": 2, "NCCL_ALGO set, plugin": 2})


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
        self.script("tools/torchrun", f"""echo "$NODES ${{CUDA_DEVICE_MAX_CONNECTIONS:-}} ${{CUDA_MPS_PIPE_DIRECTORY:+shared}}${{NCCL_MULTI_RANK_GPU_ENABLE:-}} $*" >>{self.path("calls")}
echo '{{"program": "fake", "median_us": 10, "nccl": "2.28.9"}}'""")
        code, lines, said = self.run_script("program_ddp.sh", self.path("out"), PROGRAMS="ddp", REPEAT="1", TRANSPORTS="socket nvlink", MPS="1", RANKS="8")
        self.assertEqual((code, lines), (0, []), said)
        calls = self.read("calls").splitlines()
        self.assertEqual([x.split(" --no-python")[0] for x in calls], 3 * ["8 16 shared --nproc-per-node 8"] + 3 * ["1 16 shared1 --nproc-per-node 8"])
        self.assertEqual(self.read("service").split(), 2 * ["-d", "quit"])

    def test_training_over_gin(self):
        self.script("tools/torchrun", f"""echo "${{UNDER:-plain}} $NODES ${{CUDA_DEVICE_MAX_CONNECTIONS:-}} ${{NCCL_NET_PLUGIN:-}} ${{NCCL_NET:-}} ${{DYNAMICCL_CARRIER:-}}${{DYNAMICCL_GIN_NET:-}}" >>{self.path("calls")}
echo '{{"program": "fake", "median_us": 10, "nccl": "2.28.9"}}'""")
        more = {"PROGRAMS": "ddp", "REPEAT": "1", "TRANSPORTS": "gin socket"}
        code, _, said = self.run_script("program_ddp.sh", self.path("out"), **more)
        self.assertEqual((code, "make all carrier kernels" in said), (2, True), said)
        os.makedirs(self.path("lib"))
        for name in ("libnccl-net-dynamiccl-carrier.so", "dynamiccl-gin.fatbin"):
            with open(self.path("lib", name), "w"):
                pass
        code, lines, said = self.run_script("program_ddp.sh", self.path("out"), **more)
        self.assertEqual((code, lines), (0, []), said)
        calls = [" ".join(x.split()) for x in self.read("calls").splitlines()]
        self.assertEqual(sorted(set(calls[:3])), ["plain 2 32 dynamiccl-carrier Socket", "run 2 32 dynamiccl-carrier 1dynamiccl-carrier"])
        self.assertEqual(sorted(set(calls[3:])), ["plain 2", "run 2"])

    def test_pingpong(self):
        code, lines, said = self.run_script("program_pingpong.sh", self.path("out"), REPEAT="2", PINGPONG="--kib 64", ARMS="plain none=run,DYNAMICCL_SOCKET_THREADS=0")
        self.assertEqual((code, lines), (0, []), said)
        self.assertEqual(set(self.read("calls").splitlines()),
                         {f"{x} 2 --nproc-per-node 2 --no-python nccltuner/gputest/program_node.sh python3 examples/pingpong.py --kib 64" for x in ("plain", "run")})
        self.assertEqual(["comparison" in json.loads(line) for line in self.read("out").splitlines()], 4 * [False] + [True])

    def test_parts(self):
        code, lines, said = self.run_script("program_parts.sh", self.path("out"), REPEAT="1", FLAGS="--steps 2", LOGS=self.path("logs"))
        self.assertEqual((code, lines), (0, []), said)
        calls = self.read("calls").splitlines()
        self.assertEqual(len(calls), 10)
        self.assertTrue(all(x.endswith("python3 nccltuner/gputest/program_perturbed.py examples/ddp.py --steps 2") for x in calls), calls)
        runs = {x["arm"]: x for x in map(json.loads, self.read("out").splitlines()) if "comparison" not in x}
        self.assertEqual(runs["early-turn-early-turn"]["variables"], {"PERTURB": "early-turn,early-turn"})
        self.assertEqual(runs["joined-notuner"]["variables"]["NCCL_TUNER_PLUGIN"], "none")
        self.assertEqual((runs["watched"]["kind"], runs["watched"]["options"]), ("run", ["--learner", "default"]))

    def test_parts_of_another_program(self):
        code, lines, said = self.run_script("program_parts.sh", self.path("out"), REPEAT="1", PROGRAM="fsdp", ARMS="plain run")
        self.assertEqual((code, lines), (0, []), said)
        self.assertEqual([x.split()[-6:] for x in self.read("calls").splitlines()], 2 * ["--steps 30 --warmup 15 --kernels 3".split()])
        self.assertTrue(all("examples/fsdp.py" in x for x in self.read("calls").splitlines()))
        self.assertEqual({json.loads(line)["figure"] for line in self.read("out").splitlines()}, {"fsdp step by parts, nvlink"})

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

    def test_no_gpu(self):
        os.remove(self.path("tools/nvidia-smi"))
        if shutil.which("nvidia-smi"):
            self.skipTest("nvidia-smi is here")
        for name in "torch", "decode", "ddp", "overlap", "fused", "kill", "parts", "pingpong", "fallbacks":
            done = self.start(f"program_{name}.sh", self.path("out"))
            self.assertEqual((done.returncode, done.stderr), (2, "nvidia-smi is not here: this needs a machine with NVIDIA GPUs\n"), name)
            self.assertFalse(os.path.exists(self.path("out")), name)

    def test_no_pytorch(self):
        os.remove(self.path("tools/torchrun"))
        if shutil.which("torchrun"):
            self.skipTest("torchrun is here")
        for name in "torch", "decode", "fused", "ddp", "overlap", "parts", "pingpong", "fallbacks":
            done = self.start(f"program_{name}.sh", self.path("out"))
            self.assertEqual((done.returncode, done.stderr), (2, "torchrun is not here: this needs PyTorch\n"), name)
            self.assertFalse(os.path.exists(self.path("out")), name)

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

    def test_ranks_have_cpus(self):
        def start(rank, cpus):
            return subprocess.run(["bash", os.path.join(HERE, "program_node.sh"), sys.executable, "-c", "import os; print(*sorted(os.sched_getaffinity(0)))"], capture_output=True,
                                  text=True, timeout=30, env={"PATH": os.environ["PATH"], "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2", "CPUS": cpus})

        all_of_them = sorted(os.sched_getaffinity(0))
        first, last = all_of_them[0], all_of_them[-1]
        self.assertEqual([start(r, f"{first} {last}").stdout.split() for r in range(2)], [[str(first)], [str(last)]])
        self.assertEqual(start(0, "").stdout.split(), [str(x) for x in all_of_them])
        short = start(1, str(first))
        self.assertEqual((short.returncode, short.stdout), (2, ""))
        self.assertIn(f'CPUS="{first}" has no CPUs for rank 1 of 2', short.stderr)

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


if __name__ == "__main__":
    unittest.main()
