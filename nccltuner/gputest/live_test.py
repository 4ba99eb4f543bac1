"""Tests of cases.sh, stress.sh, live.sh, there.sh and gin_types.sh without a GPU: what they call are shell scripts."""
import json
import os
import shutil
import unittest

from program_scripts_test import HERE, Tree


# Stands in for mix: what it was told, and by which environment; results that are made wrong it notices.
MIX = """
echo "$* | ${CUDA_MPS_PIPE_DIRECTORY:+mps }${NCCL_MULTI_RANK_GPU_ENABLE:-0} ${NCCL_MAX_CTAS:--} ${CUDA_DEVICE_MAX_CONNECTIONS:--} $CUDA_VISIBLE_DEVICES" >>"$0.log"
case "$*" in *spoil*) echo WRONG; exit 1 ;; esac
"""


class Mix(Tree):
    def setUp(self):
        super().setUp()
        for name in ("cases.sh", "stress.sh", "mix_common.sh", "kernels_there.sh"):
            shutil.copy(os.path.join(HERE, name), self.path("nccltuner/gputest"))
        self.script("lib/libnccl-tuner-dynamiccl.so", "")
        self.script("lib/dynamiccl-kernels.fatbin", "")
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
        self.assertEqual((code, calls), (1, ["random --ranks 2 --ours lsa --seconds 2 --spoil 20 | 0 - - 0,1", f"cases --ranks 2 --ours lsa --out {out} --only abort | 0 - - 0,1"]), said)
        self.assertFalse(os.path.exists(self.path("mps.log")))
        line = json.loads(self.read("out"))
        self.assertEqual((line["gpus"], line["ranks"]), (2, 2))

    def test_ranks_that_share_gpus(self):
        for ranks, told in ((4, "mps 1 8 16 0,1"), (8, "mps 1 4 16 0,1"), (16, "mps 1 2 8 0,1")):
            code, calls, said = self.mix("stress.sh", "1", self.path("out"), MPS="1", RANKS=str(ranks))
            self.assertEqual((code, calls[-1]), (1, f"random --ranks {ranks} --ours lsa --seconds 1 --out {self.path('out')} | {told}"), said)
        self.assertEqual(self.read("mps.log").splitlines(), ["-d all", "quit 0,1"] * 3)
        line = json.loads(self.read("out").splitlines()[-1])
        self.assertEqual((line["gpus"], line["ranks"]), (2, 16))

    def test_what_ran_is_accounted_for(self):
        ran = {"chosen": 70, "default": 20, "overruled": 0, "not_known": 3, "aggregated": 5, "disagreed": 0, "declined": 2}
        core = {"groups": 100, "incomplete": 2, "disagreed": 0, "overruled": 0, "slow": 1, "ran": ran}
        for overruled, missing, want, says in ((0, 0, 0, ""), (1, 0, 1, "group_calls_overruled is 1"), (0, 1, 1, "not accounted for")):
            core.update(overruled=overruled, groups=100 + missing, ran={**ran, "chosen": 70 - overruled, "overruled": overruled})
            with open(self.path("bin/dynamiccld.status"), "w") as f:
                json.dump({"samples": 400, "publications": 9, "comms": [], "core": core}, f, indent=2)
            code, _, said = self.mix("cases.sh", self.path("out"))
            line = json.loads(self.read("out").splitlines()[-1])
            self.assertEqual((code, line["exit"], line["group_calls_incomplete"], line["ran_chosen"], line["ran_not_known"], line["ran_aggregated"]),
                             (want, 0, 2, 70 - overruled, 3, 5), said)
            self.assertIn(says, said)

    def test_what_communicators_had_of_gin(self):
        comms = [{"id": str(n), "ranks": 4, "nodes": 2, **({"gin": "in flight, gdaki, 4 contexts"} if n < 2 else {})} for n in range(3)]
        with open(self.path("bin/dynamiccld.status"), "w") as f:
            json.dump({"samples": 400, "publications": 9, "comms": comms, "core": {}}, f)
        self.mix("cases.sh", self.path("out"))
        self.assertEqual(json.loads(self.read("out").splitlines()[-1])["gin"], {"4 ranks on 2 nodes: in flight, gdaki, 4 contexts": 2, "4 ranks on 2 nodes: none": 1})

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
            calls = self.calls(MPS="1", RANKS="4", TIME="45", STEPS="cpu-load watching host graphs graphs-comms", **nodes)
            self.assertEqual([x.split(" --arms ")[0] for x in calls],
                             [f"mps {queues} --nodes {steps} --ranks 4" for queues in (10, 10, 6, 8, 8)])
            os.remove(self.path("bin/dynamiccld.log"))
        self.assertIn("--phases quiet:30s,cpu:60s,quiet:30s", calls[0])
        self.assertIn("plain,plain+X=1,plugin,observe,run --time host", calls[2])
        self.assertIn("plain,plain+X=1,plugin,observe --time graph --comms 3 ", calls[4])

    def test_where_the_thread_that_calls_is(self):
        folder = os.path.join(self.path("nccltuner/gputest"), "where")
        shutil.copytree(os.path.join(HERE, "where"), folder)
        self.script("bin/dynamiccld", """echo "$*" >>"$0.log"; out=$3; t=${out%/*}
[ ! -e "$t/libwhere.so" ] || built=1
printf 'libdynamiccl.so\\t0x10\\n' >"$t/where/plugin-7.tsv"
echo "{\\"kind\\": \\"phase\\", \\"seconds\\": 45, \\"rounds\\": 100, \\"points\\": [{\\"collective\\": \\"AllReduce\\", \\"bytes\\": 1024}], \\"built\\": ${built:-0}}" >"$out" """)
        done = self.start("live.sh", self.path("out"), STEPS="host-where", TIME="45")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(self.read("bin/dynamiccld.log"), "--arms plain,plain.X=1,plugin,plain.WHERE_OUT=[^,]*/where/plain.WHERE_AFTER_S=15.WHERE_S=25.LD_PRELOAD=[^,:]*/libwhere.so,"
                         "plugin.WHERE_OUT=[^,]*/where/plugin.WHERE_AFTER_S=15.WHERE_S=25.LD_PRELOAD=[^,:]*/libwhere.so:[^,]*/lib/libdynamiccl.so --time host .*quiet:45s --collectives AllReduce")
        phase, rank = [json.loads(line) for line in self.read("out").splitlines()]
        self.assertEqual((phase["built"], rank["arm"], rank["samples"]), (1, "plugin", 1))
        short = self.start("live.sh", self.path("out"), STEPS="host-where", TIME="20")
        self.assertEqual((short.returncode, "TIME=25" in short.stderr), (2, True), short.stderr)

    def test_without_sharing(self):
        calls = self.calls(STEPS="cpu-load watching nccl-choices calibrated calibrated-registered", NCCL_LIB="/n", TIME="45")
        self.assertEqual([x.split("--nccl-lib /n")[0] for x in calls[1:3]], ["- bench "] * 2)
        self.assertIn("--nodes 2 ", calls[0])
        self.assertNotIn("--nodes", calls[1])
        self.assertIn(" --nodes 4 --arms plain,plain+X=1,observe --time gpu ", self.calls(STEPS="watching", NODES="4")[-1])
        self.assertIn("--arms plain,plain+X=1,run+DYNAMICCL_NO_KERNELS=1 --phases quiet:45s --sizes 1K,16K,64K,256K,1M,4M,16M,64M,256M", calls[2])
        for buffers, (calibrate, bench) in (("plain", calls[3:5]), ("registered", calls[5:7])):
            self.assertRegex(calibrate, f"^- calibrate --buffers {buffers} --store .*/store.db --nccl-lib /n$")
            self.assertRegex(bench, f"--buffers {buffers} --time graph --arms plain,plain.X=1,run.DYNAMICCL_NO_EXPLORE=1 --store ")

    def test_a_step_that_fails_and_one_that_is_not_known(self):
        done = self.start("live.sh", self.path("out"), STEPS="socket-settings host")  # bench fails where there are two nodes, twice
        self.assertEqual((done.returncode, len(self.read("bin/dynamiccld.log").splitlines())), (1, 3), done.stderr)
        self.assertEqual(self.start("live.sh", self.path("out"), STEPS="nothing").returncode, 2)


class There(Tree):
    """What bundle.sh packs, unpacked elsewhere."""

    def source(self, *args, **env):
        shutil.copy(os.path.join(HERE, "there.sh"), self.path("nccltuner/gputest"))
        self.script("nccltuner/gputest/sources.sh", 'set -eu\ncd "$(dirname "$0")/../.."\n. nccltuner/gputest/there.sh "$@"\necho "$PROGRAM_COMMIT $MIX_BUILD ${NCCL_TESTS_BUILT:-none} $LD_LIBRARY_PATH"')
        return self.start("sources.sh", *args, PYTHONPATH=self.path("python"), LD_LIBRARY_PATH="", **env)

    def test_unpacks_and_sets(self):
        done = self.source()
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("PACK=BUNDLE.tar.xz", done.stderr)
        self.script("python/nvidia/nccl/__init__.py", "")
        for name in (".cache/gpu/nccl-tests/all_reduce_perf", "lib/libdynamiccl.so", "bin/dynamiccld"):
            self.script(name, "")
            os.utime(self.path(name), (1, 1))
        with open(self.path(".cache/gpu/commit"), "w", encoding="ascii") as f:
            f.write("0123abcd\n")
        bundle = shutil.make_archive(self.path("bundle"), "xztar", self.path("."), ".cache")
        shutil.rmtree(self.path(".cache"))
        done = self.source(bundle)
        self.assertEqual(done.stdout.split(), ["0123abcd", ".cache/gpu", ".cache/gpu/nccl-tests", f"{self.path('lib')}:{self.path('python/nvidia/nccl')}/lib"], done.stderr)
        self.assertGreater(os.stat(self.path("lib/libdynamiccl.so")).st_mtime, 1)
        self.assertIn("is not there", self.source(NCCL_LIB=self.path("elsewhere/libnccl.so.2")).stderr)
        self.script("elsewhere/libnccl.so.2", "")
        self.assertIn(f"{self.path('lib')}:{self.path('elsewhere')}", self.source(NCCL_LIB=self.path("elsewhere/libnccl.so.2")).stdout)


class GinTypes(Tree):
    """Each type's puts are timed with that type's plugin alone, and one program has both."""
    NAMES = "${NCCL_GIN_PLUGIN:+gin }${NCCL_RMA_PLUGIN:+rma }${NCCL_GIN_TYPE:-any}"

    def setUp(self):
        super().setUp()
        for name in ("gin_types.sh", "gin_common.sh"):
            shutil.copy(os.path.join(HERE, name), self.path("nccltuner/gputest"))
        shutil.copy(os.path.join(HERE, "../../kernels/bench/gin_trips.sh"), self.path("kernels/bench"))
        for name in ("libnccl-net-dynamiccl-carrier.so", "dynamiccl-gin.fatbin", "dynamiccl-gin-2.32.3.fatbin", "dynamiccl-carrier.fatbin", "nccl"):
            self.script("lib/" + name, "")
        self.script("tools/python3", 'echo "$NCCL_IS"')
        self.script("tools/nvidia-smi", "echo 580.1")
        self.script("tools/gin", f'echo "{self.NAMES} $*" >>"$0.log"; echo "{{}}"')
        self.script("bin/dynamiccld", f'echo "{self.NAMES} $*" >>"$0.log"; while [ "$1" != --out ]; do shift; done; printf "%s\\n" $GRANTED >"$2"')

    def types(self, nccl="23203", granted="AllReduce,1024,gin,gdaki,-,4,9.1 AllReduce,1024,gin,proxy,-,4,84.1", **env):
        return self.start("gin_types.sh", self.path("out.jsonl"), NCCL_IS=nccl, NCCL_LIB=self.path("lib/nccl"), GIN=self.path("tools/gin"), GRANTED=granted, COMMIT="c", **env)

    def test_each_and_both(self):
        done = self.types(NCCL_GIN_TYPE="2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([x.split(" --ranks 2 --contexts 1 --trips ")[0] for x in self.read("tools/gin.log").splitlines()], ["gin 3", "rma 2"] * 2)
        self.assertIn("gin rma any sweep --nodes 2 --choices gin,ring ", self.read("bin/dynamiccld.log"))
        self.assertEqual([json.loads(x)["plugin"] for x in self.read("out.jsonl").splitlines() if "plugin" in x], ["libnccl-net-dynamiccl-carrier.so"] * 4)

    def test_one_that_is_not_granted(self):
        done = self.types(granted="AllReduce,1024,gin,proxy,-,4,84.1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no choice gin/gdaki/N", done.stderr)

    def test_another_nccl(self):
        self.assertEqual(self.types(nccl="22809").returncode, 2)

    def test_no_gpu(self):
        os.remove(self.path("tools/nvidia-smi"))
        if shutil.which("nvidia-smi"):
            self.skipTest("nvidia-smi is here")
        shutil.copytree(os.path.join(HERE, "asked"), self.path("nccltuner/gputest/asked"))
        for name in "../../kernels/bench/gin_trips.sh", "asked.sh":
            shutil.copy(os.path.join(HERE, name), self.path("nccltuner/gputest", name))
            done = self.start(name, self.path("out.jsonl"))
            self.assertEqual((done.returncode, done.stderr), (2, "nvidia-smi is not here: this needs a machine with NVIDIA GPUs\n"), name)
            self.assertFalse(os.path.exists(self.path("out.jsonl")), name)


if __name__ == "__main__":
    unittest.main()
