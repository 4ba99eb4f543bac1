"""Tests of cases.sh, stress.sh and run.sh without a GPU: that they test our kernels, or say that they do not."""
import json
import os
import re
import shutil
import subprocess
import unittest

from program_scripts_test import HERE, Tree

# Stands in for mix: notes how it was called, and finds what was made wrong.
MIX = """
echo "$*" >>"$0.log"
case " $* " in *" --spoil "*) echo "mix: WRONG rank 0" >&2; exit 1 ;; esac
exit 0
"""
DAEMON = """
[ "$1" = status ] && echo '{"samples": 9, "publications": 1, "core": {"groups": 0, "over_gin": 1}}'
[ "$1" != serve ] || exec sleep 60
"""


class Mix(Tree):
    def setUp(self):
        super().setUp()
        for name in os.listdir(HERE):
            if name in ("cases.sh", "stress.sh", "run.sh", "there.sh", "kernels_there.sh") or name.startswith("mix"):
                shutil.copy(os.path.join(HERE, name), self.path("nccltuner/gputest"))
        self.script("bin/dynamiccld", DAEMON)
        self.script("built/mix", MIX)
        self.script("tools/torchrun", "exit 0")
        self.script("python/nvidia/nccl/__init__.py", "")
        self.script("python/nvidia/nccl/lib/libnccl.so.2", "")
        for name in ("libnccl-tuner-dynamiccl.so", "libdynamiccl.so", "libnccl-net-dynamiccl-carrier.so"):
            self.script("lib/" + name, "")
        self.out = self.path("out.jsonl")

    def mix(self, script, *args, **env):
        args = [self.out] if script == "cases.sh" else ["1", self.out]
        done = self.start(script, *args, **{"MIX_BUILD": self.path("built"), "MIX_COMMIT": "c", "PYTHONPATH": self.path("python"), "LD_PRELOAD": "", **env})
        calls = self.read("built/mix.log").splitlines() if os.path.exists(self.path("built/mix.log")) else []
        return done, calls

    def lines(self):
        with open(self.out) as f:
            return [json.loads(line) for line in f]

    def ours(self, calls):
        return {re.search(r"--ours (\w+)", c)[1] for c in calls}

    def test_kernels_are_missing(self):
        for script in ("cases.sh", "stress.sh", "run.sh"):
            with self.subTest(script):
                done, calls = self.mix(script)
                self.assertEqual((done.returncode, calls), (2, []), done.stderr)
                self.assertIn(self.path("lib/dynamiccl-kernels.fatbin") + " is not there: run make kernels first", done.stderr)

    def test_no_gpu_or_no_pytorch(self):
        self.script("lib/dynamiccl-kernels.fatbin", "")
        for tool, says in (("torchrun", "torchrun is not here: this needs PyTorch\n"), ("nvidia-smi", "nvidia-smi is not here: this needs a machine with NVIDIA GPUs\n")):
            os.remove(self.path("tools", tool))
            if shutil.which(tool):
                self.skipTest(tool + " is here")
            done = self.start("run.sh", self.out)
            self.assertEqual((done.returncode, done.stderr), (2, says))
        self.assertFalse(os.path.exists(self.out))

    def test_they_are_there(self):
        self.script("lib/dynamiccl-kernels.fatbin", "")
        for script in ("cases.sh", "stress.sh"):
            done, calls = self.mix(script)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.ours(calls), {"lsa"})
        self.assertEqual({x["kernels"] for x in self.lines()}, {"ours"})

    def test_left_out_on_purpose(self):
        done, calls = self.mix("cases.sh", DYNAMICCL_NO_KERNELS="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.ours(calls), {"none"})
        self.assertEqual([x["kernels"] for x in self.lines()], ["none: DYNAMICCL_NO_KERNELS"])

    def test_another_file_of_kernels(self):
        self.assertEqual(self.mix("cases.sh", DYNAMICCL_KERNELS=self.path("lib/libdynamiccl.so"))[0].returncode, 0)
        self.assertIn("/nowhere/x.fatbin is not there", self.mix("cases.sh", DYNAMICCL_KERNELS="/nowhere/x.fatbin")[0].stderr)

    def test_no_nvlink(self):
        self.script("lib/dynamiccl-kernels.fatbin", "")
        for link, ours in (("NV18", "lsa"), ("PHB", "none")):
            self.script("tools/nvidia-smi", f'''case "$*" in
              *query*) echo 580.1 ;;
              *topo*) printf '\\tGPU0\\tGPU1\\tCPU Affinity\\nGPU0\\t X \\t{link}\\t0-7\\nGPU1\\t{link}\\t X \\t0-7\\n' ;;
              *) echo "GPU 0"; echo "GPU 1" ;;
            esac''')
            done, calls = self.mix("cases.sh")
            self.assertEqual((done.returncode, re.search(r"--ours (\w+)", calls[-1])[1]), (0, ours), done.stderr)

    def test_over_gin(self):
        self.script("lib/dynamiccl-kernels.fatbin", "")
        # The library itself is asked which NCCL it is.
        library = self.path("python/nvidia/nccl/lib/libnccl.so.2")
        os.remove(library)
        subprocess.run(["cc", "-shared", "-xc", "-o", library, "-"], input="int ncclGetVersion(int *v) { *v = 22809; return 0; }", text=True, check=True)
        done, calls = self.mix("cases.sh", GIN="1")
        self.assertEqual((done.returncode, calls), (2, []))
        self.assertIn("lib/dynamiccl-gin.fatbin is not there", done.stderr)
        self.script("lib/dynamiccl-gin.fatbin", "")
        done, calls = self.mix("cases.sh", GIN="1")
        self.assertEqual((done.returncode, self.ours(calls)), (0, {"gin"}), done.stderr)
        self.script("bin/dynamiccld", DAEMON.replace('"over_gin": 1', '"over_gin": 0'))
        done, calls = self.mix("cases.sh", GIN="1", DEAD_RANK="1")
        self.assertEqual((done.returncode, re.search(r"--ours (\w+)", calls[-1])[1]), (0, "none"), done.stderr)


class Targets(unittest.TestCase):
    def plan(self, *words):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("DYNAMICCL_", "MAKE"))}
        return subprocess.run(["make", "-n", "-C", os.path.join(HERE, "../.."), *words], capture_output=True, text=True, timeout=60, env=env).stdout

    def test_make_builds_kernels(self):
        for target in ("gpu-test", "gpu-stress"):
            for how, wanted in (("", True), ("DYNAMICCL_NO_KERNELS=1", False)):
                self.assertEqual("-gin.fatbin" in self.plan(target, *how.split()), wanted, f"{target} {how}")
            self.assertIn("kernels/carrier", self.plan(target, "GIN=1"))

    def test_nothing_is_built_without_gpus(self):
        if shutil.which("nvidia-smi"):
            self.skipTest("nvidia-smi is here")
        for target in ("gpu-test", "gpu-stress"):
            done = subprocess.run(["make", "-s", "-C", os.path.join(HERE, "../.."), target], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertTrue(done.stderr.startswith("nvidia-smi is not here: this needs a machine with NVIDIA GPUs\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()
