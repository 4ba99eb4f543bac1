"""Tests of where/: a real program that is asked where it is, and what is made of that. Without a GPU."""
import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "where")
spec = importlib.util.spec_from_file_location("where", os.path.join(FOLDER, "where.py"))
where = importlib.util.module_from_spec(spec)
spec.loader.exec_module(where)

PROGRAM = """
#include <time.h>
static volatile unsigned long spun;
__attribute__((noinline)) void spin(void) { for (int i = 0; i < 100000; i++) spun++; }
int main(void) { time_t end = time(0) + 60; while (time(0) < end) spin(); return 0; }
"""


class Where(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def build(self):
        cc = os.environ.get("CC", "gcc")
        with open(self.path("spins.c"), "w", encoding="utf-8") as f:
            f.write(PROGRAM)
        subprocess.run([cc, "-O1", "-o", self.path("spins"), self.path("spins.c")], check=True)
        subprocess.run([cc, "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", self.path("libwhere.so"), os.path.join(FOLDER, "where.c"), "-lpthread"], check=True)

    def test_a_program_that_spins_in_one_function(self):
        self.build()
        env = {**os.environ, "LD_PRELOAD": self.path("libwhere.so"), "WHERE_OUT": self.path("arm"), "WHERE_AFTER_S": "1", "WHERE_S": "1"}
        with subprocess.Popen([self.path("spins")], env=env) as ran:
            written = self.path(f"arm-{ran.pid}.tsv")
            while not os.path.exists(written) and ran.poll() is None:
                time.sleep(0.05)
            ran.kill()
        with open(written, encoding="utf-8") as f:
            found = [line.split() for line in f]
        symbols = subprocess.run(["nm", "-S", self.path("spins")], check=True, capture_output=True, text=True).stdout.splitlines()
        address, size = next((int(x.split()[0], 16), int(x.split()[1], 16)) for x in symbols if x.endswith(" spin"))
        inside = [x for x in found if x[0] == "program" and address <= int(x[1], 16) < address + size]
        self.assertLess(10, len(found))  # 10,000 on a machine of its own, in a second
        self.assertLess(0.9, len(inside) / len(found))

    def test_a_program_that_nobody_asks(self):
        self.build()
        with self.assertRaises(subprocess.TimeoutExpired):
            subprocess.run([self.path("spins")], env={**os.environ, "LD_PRELOAD": self.path("libwhere.so"), "WHERE_AFTER_S": "0", "WHERE_S": "0"}, cwd=self.folder, check=True, timeout=2)
        self.assertFalse([x for x in os.listdir(self.folder) if x.endswith(".tsv")])

    def results(self, points=1):
        point = {"collective": "AllReduce", "bytes": 1024}
        rows = [{"kind": "head"}, {"kind": "phase", "seconds": 45, "rounds": 900, "points": [point] * points}, {"kind": "end"}]
        with open(self.path("run.jsonl"), "w", encoding="utf-8") as f:
            f.writelines(json.dumps(row) + "\n" for row in rows)
        return self.path("run.jsonl")

    def ranks(self, **lines):
        for name, found in lines.items():
            with open(self.path(name.replace("_", "-") + ".tsv"), "w", encoding="utf-8") as f:
                f.write(found)

    def test_rows(self):
        results = self.results()
        self.ranks(plugin_7="libdynamiccl.so\t0x10\n" * 3 + "libdynamiccl.so\t0x20\n" + "libcuda.so.1\t0x30\n" * 996, plain_8="libcuda.so.1\t0x30\n" * 1000)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            where.main(results, self.folder, 25, 100)
        with open(results, encoding="utf-8") as f:
            plain, plugin = [json.loads(line) for line in f][3:]
        self.assertEqual((plain["arm"], plain["pid"], plain["us"]), ("plain", 8, {"libcuda.so.1": 2.0}))  # 100,000 us in 50,000 calls
        self.assertEqual((plugin["arm"], plugin["samples"], plugin["calls"], plugin["bytes"]), ("plugin", 1000, 50000, 1024))
        self.assertEqual((plugin["us"], plugin["addresses"]), ({"libcuda.so.1": 1.992, "libdynamiccl.so": 0.008}, {"libdynamiccl.so+0x10": 3, "libdynamiccl.so+0x20": 1}))
        self.assertEqual(said.getvalue(), "plain: libcuda.so.1 2.00 us\nplugin: libcuda.so.1 1.99 us, libdynamiccl.so 0.01 us\n")

    def test_what_cannot_be_told(self):
        self.assertRaisesRegex(SystemExit, "no rank has written", where.main, self.results(), self.folder, 25, 100)
        self.ranks(plain_8="libcuda.so.1\t0x30\n")
        self.assertRaisesRegex(SystemExit, "one collective and one size", where.main, self.results(points=2), self.folder, 25, 100)
        with open(self.path("run.jsonl"), encoding="utf-8") as f:
            self.assertEqual(len(f.readlines()), 3)  # nothing was added


if __name__ == "__main__":
    sys.exit(unittest.main())
