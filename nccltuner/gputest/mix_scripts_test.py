"""Tests of cases.sh, stress.sh and run.sh without a GPU: that they test our kernels, or say that they do not."""
import json
import os
import re
import shutil
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

    def ours(self, calls):
        return {re.search(r"--ours (\w+)", c)[1] for c in calls}

    def test_kernels_are_missing(self):
        for script in ("cases.sh", "stress.sh", "run.sh"):
            with self.subTest(script):
                done, calls = self.mix(script)
                self.assertEqual((done.returncode, calls), (2, []), done.stderr)
                self.assertIn(self.path("lib/dynamiccl-kernels.fatbin") + " is not there: run make kernels first", done.stderr)

    def test_they_are_there(self):
        self.script("lib/dynamiccl-kernels.fatbin", "")
        for script in ("cases.sh", "stress.sh"):
            done, calls = self.mix(script)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.ours(calls), {"lsa"})
        self.assertEqual({json.loads(line)["kernels"] for line in open(self.out)}, {"ours"})

    def test_left_out_on_purpose(self):
        done, calls = self.mix("cases.sh", DYNAMICCL_NO_KERNELS="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.ours(calls), {"none"})
        self.assertEqual([json.loads(line)["kernels"] for line in open(self.out)], ["none: DYNAMICCL_NO_KERNELS"])

    def test_another_file_of_kernels(self):
        self.assertEqual(self.mix("cases.sh", DYNAMICCL_KERNELS=self.path("lib/libdynamiccl.so"))[0].returncode, 0)
        self.assertIn("/nowhere/x.fatbin is not there", self.mix("cases.sh", DYNAMICCL_KERNELS="/nowhere/x.fatbin")[0].stderr)

    def test_over_gin(self):
        self.script("lib/dynamiccl-kernels.fatbin", "")
        # Of which NCCL it is the library itself is asked.
        source = 'int ncclGetVersion(int *v) { *v = 22809; return 0; }'
        with open(self.path("n.c"), "w") as f:
            f.write(source)
        os.remove(self.path("python/nvidia/nccl/lib/libnccl.so.2"))
        self.assertEqual(os.system(f"cc -shared -o {self.path('python/nvidia/nccl/lib/libnccl.so.2')} {self.path('n.c')}"), 0)
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
    def test_make_builds_kernels(self):
        root = os.path.join(HERE, "../..")
        for target in ("gpu-test", "gpu-stress"):
            for how, wanted in (("", True), ("DYNAMICCL_NO_KERNELS=1", False)):
                text = os.popen(f"make -n -C {root} {how} {target} 2>&1").read()
                self.assertEqual("-gin.fatbin" in text, wanted, f"{target} {how}")
            self.assertIn("carrier", os.popen(f"make -n -C {root} GIN=1 {target} 2>&1").read())


if __name__ == "__main__":
    unittest.main()
