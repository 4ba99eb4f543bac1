"""Tests of nccltests.sh and program_nccltests.sh without a GPU: what they call are shell scripts."""
import json
import os
import shutil
import unittest

from program_scripts_test import Tree
from program_test import TABLE

NOTHING = "           0             0     float     sum      -1     0.04    0.00    0.00       0     0.03    0.00    0.00       0"


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
            f.write("\n".join(TABLE.splitlines()[:4] + [NOTHING] + TABLE.splitlines()[4:5]) + "\n")
        # A makefile that writes each program as a script: it notes how it was called and prints the table.
        with open(self.path("source/src/Makefile"), "w") as f:
            f.write(f"""$(BUILDDIR)/%_perf_mpi: MADE = 1 _mpi $(MPI_HOME)
$(BUILDDIR)/%_perf_mpi: $(BUILDDIR)/%_perf
	@mv $< $@
$(BUILDDIR)/%_perf:
	@echo "$(MPI) $(NAME_SUFFIX) $(MPI_HOME)" >>{self.path("made_with")}
	@test "$(NVCC_GENCODE)" = "-arch=sm_90" && test -e $(NCCL_HOME)/include/nccl.h && test -L $(NCCL_HOME)/lib/libnccl.so
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

    def test_a_process_a_gpu(self):
        os.makedirs(self.path("mpi/include"))
        self.script("tools/mpirun", f"""echo "mpirun $*" >>{self.path('calls')}
while [ "${{1#-}}" != "$1" ]; do [ "$1" = -np ] && shift; shift; done
exec "$@\"""")
        os.makedirs(self.path(".ci"), exist_ok=True)
        self.script(".ci/mpi", f"echo {self.path('tools/mpirun')}")
        env = {**self.env, "MPI": "1", "MPI_HOME": self.path("mpi"), "TESTS": "all_reduce", "BUILD": self.path("built")}
        code, _, said = self.run_script("nccltests.sh", **env)
        self.assertEqual((code, "mpi holds no include/mpi.h; set MPI_HOME" in said), (2, True), said)
        with open(self.path("mpi/include/mpi.h"), "w"):
            pass
        code, lines, said = self.run_script("nccltests.sh", **env)
        self.assertEqual((code, len(lines)), (0, 2), said)
        self.assertEqual(self.read("made_with").split(), ["1", "_mpi", self.path("mpi")])
        first, second = self.read("calls").splitlines()
        self.assertRegex(first, r"^mpirun --allow-run-as-root --oversubscribe -np 2 \S+/all_reduce_perf_mpi -t 1 -g 1 ")
        self.assertRegex(second, r"/all_reduce_perf_mpi -t 1 -g 1 ")
        for more, what in (({"THREADS": "1"}, "take one of them"), ({"MPI": "yes"}, "MPI is yes; 0 or 1")):
            code, _, said = self.run_script("nccltests.sh", **{**env, **more})
            self.assertEqual((code, what in said), (2, True), said)

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

    def test_a_finished_build(self):
        self.run_script("nccltests.sh", **self.env, BUILD=self.path("built"), BUILD_ONLY="1", TESTS="all_reduce all_gather")
        shutil.rmtree(self.path("source"))  # nothing is there to make them from
        self.script("tools/make", f"touch {self.path('made')}; exit 1")
        env = {"NCCL_TESTS_BUILT": self.path("built"), "NCCL_HOME": self.path("nccl"), "REPEAT": "1", "FIGURES": "graph"}
        code, _, said = self.run_script("program_nccltests.sh", self.path("out"), **env, TESTS="all_reduce all_gather")
        self.assertEqual(code, 0, said)
        self.assertEqual({json.loads(x)["arm"] for x in self.read("out").splitlines() if "arm" in json.loads(x)}, {"plain", "observe", "plugin"})
        code, _, said = self.run_script("program_nccltests.sh", self.path("none"), **env, TESTS="all_reduce broadcast reduce_scatter")
        self.assertEqual(code, 2)
        self.assertIn("lacks broadcast_perf reduce_scatter_perf: build them with NCCL_TESTS=SOURCES", said)
        os.remove(self.path("nccl/lib/libnccl.so.2"))
        code, _, said = self.run_script("nccltests.sh", **env, TESTS="all_reduce")
        self.assertEqual(code, 2)
        self.assertIn("holds no lib/libnccl.so.2; set NCCL_HOME", said)
        self.assertFalse(os.path.exists(self.path("made")) or os.path.exists(self.path("none")))

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


if __name__ == "__main__":
    unittest.main()
