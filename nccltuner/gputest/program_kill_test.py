"""Tests of program_kill.py and program_kill.sh without a GPU or PyTorch: ranks are shell scripts."""
import json
import os
import subprocess
import sys
import unittest

from program_scripts_test import Tree


# Stands in for a rank that program_kill.py starts: it goes round until rank 1 is dead, and then does all but what FORGETS says.
KILLED = """
echo "{\\"ready\\": true, \\"nccl\\": \\"2.28.9\\", \\"kernels\\": $([ "$FORGETS" = kernels ] && echo 0 || echo 21)}"
[ "$RANK" != 1 ] || { echo $$ >"$PLACE.new"; mv "$PLACE.new" "$PLACE"; exec sleep 60; }
until [ -e "$PLACE" ]; do sleep 0.01; done
pid=$(cat "$PLACE")
while grep -qs '^State:.[^Z]' /proc/$pid/status; do sleep 0.01; done
[ "$FORGETS" != hear ] || { read -r x; exit 4; }
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

    def kill(self, forgets="", bound="20", **env):
        """(exit code, the line)"""
        if os.path.exists(self.path("place")):
            os.remove(self.path("place"))
        done = subprocess.run([sys.executable, self.path("nccltuner/gputest/program_kill.py"), "--ranks", "3", "--kill", "1", "--after", "0.1", "--bound", bound, "--", self.path("rank")],
                              capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": self.path("tools") + ":" + os.environ["PATH"],
                                                                              "FORGETS": forgets, "PLACE": self.path("place"), **env})
        return done.returncode, json.loads(done.stdout.splitlines()[-1])

    def test_survivors_have_their_error(self):
        code, line = self.kill()
        self.assertEqual((code, line["pass"], line["why"], line["killed"], line["kernels"], line["utilization"], line["nccl"]), (0, True, "", 1, [21, 21, 21], [0, 0], "2.28.9"))
        self.assertEqual([(s["rank"], s["error"], s["error_s"] < 20, s["named_s"] < 20) for s in line["survivors"]], [(r, "NCCL error 6", True, True) for r in (0, 2)])
        self.assertEqual(line["alive_when_looked_at"], [0, 2])

    def test_a_process_that_ends_has_its_error_too(self):
        code, line = self.kill("wait")
        self.assertEqual((code, line["alive_when_looked_at"], line["slowest_s"] < 20), (0, [], True))

    def test_what_is_missing_is_found(self):
        for forgets, why in (("hear", "rank 0: no error within 1 s"), ("name", "did not say that rank 1 died"), ("drain", "has not ended what was enqueued"),
                             ("kernels", "our kernels did not run")):
            code, line = self.kill(forgets, "1")
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


if __name__ == "__main__":
    unittest.main()
