"""The arms of program_bench.py: what a command's environment and command line become under each."""
import os
import shlex
import shutil

PLUGIN = {"NCCL_TUNER_PLUGIN": "libnccl-tuner-dynamiccl.so", "NCCL_PROFILER_PLUGIN": "libnccl-profiler-dynamiccl.so"}
# NVLink multicast stays off: on shared machines it has put GPUs out of service, and arms must not differ in it.
ALWAYS = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
KINDS = {
    "plain": "no plugin",
    "run": "bin/dynamiccld run; OPTIONS are its own",
    "plugin": "the plugin and no daemon",
}


class Arm:
    """NAME=KIND [VAR=VALUE]... [OPTION]...; NAME alone is a kind under its own name."""

    def __init__(self, spec):
        self.name, separator, rest = spec.partition("=")
        words = shlex.split(rest) if separator else [spec]
        self.kind, words = (words[0] if words else ""), words[1:]
        if self.kind not in KINDS:
            raise ValueError(f"arm {spec!r}: kind {self.kind!r} is none of {', '.join(KINDS)}")
        self.variables = {}
        while words and "=" in words[0] and not words[0].startswith("-"):
            name, _, value = words.pop(0).partition("=")
            self.variables[name] = value
        self.options = words
        if words and self.kind != "run":
            raise ValueError(f"arm {spec!r}: {words[0]!r} is an option, and only run takes options")

    def prepare(self, state, store):
        """Its folder, kept over repetitions: what an arm has learned it knows in the next one."""
        self.folder = state
        os.mkdir(state, 0o700)  # ranks refuse a folder that others can read
        self.store = os.path.join(state, "store.db")
        if store and self.kind == "run":
            shutil.copyfile(store, self.store)
            os.chmod(self.store, 0o600)

    def command(self, root, words):
        if self.kind != "run":
            return list(words)
        return [os.path.join(root, "bin", "dynamiccld"), "run", "--dir", self.folder, "--store", self.store, *self.options, "--", *words]

    def environment(self, root, user, more):
        env = {k: v for k, v in user.items() if k not in PLUGIN and not k.startswith("DYNAMICCL_")}
        env.update(ALWAYS)
        env.update(more)
        if self.kind == "plugin":
            env.update({k: os.path.join(root, "lib", v) for k, v in PLUGIN.items()}, DYNAMICCL_DIR=self.folder)
        env.update(self.variables)
        return env
