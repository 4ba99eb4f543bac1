#!/usr/bin/env python3
"""Makes C++ for the host of mix (nccltuner/gputest), so that it runs over the stand-ins: translate.py TO

Launches become calls, and what the stand-in for NCCL does not have is not drawn: other types than bfloat16 and float, other operators than
sum and average, more than a few sizes, messages, graphs, splits. Each place that is changed has to be there.
"""
import glob
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MIX = os.path.join(HERE, "../../../gputest")
CHANGES = {
    "mix.h": [("#include <cuda_runtime.h>", f'#include "{HERE}/host.h"')],
    "mix_rank.h": [("kMostBytes = 16 << 20", "kMostBytes = 2 << 20")],
    # Of 256 calls, which is all that a case has time for here, 64 of a kind would leave none for the fifth.
    "mix_cases.h": [("kHalfRegistered = 8 << 20", "kHalfRegistered = 2 << 20"), ("const auto &kind = kinds[k / 64 % 5];", "const auto &kind = kinds[k / 48 % 5];")],
    "mix_ours.h": [('"../preload/dynamiccl.h"', f'"{MIX}/../preload/dynamiccl.h"')],
    "mix_verify.h": [(f"__global__ void {name}(Spec s) {{", f"MIX_OFTEN({name}) {{") for name in ("mixFill", "mixCheck")],
    "mix_exchange.h": [("kMostPart = 12 << 20, kMostPartOverGin = 2 << 20", "kMostPart = 1 << 20, kMostPartOverGin = 1 << 18")],
    "mix_windows.h": [("kMostWindowed = 8 << 20", "kMostWindowed = 1 << 18")],
    "mix_random.h": [
        ("kEverything = {8, 220, 120}", "kEverything = {0, 0, 120}"),
        ("c.type = random.below(options.float8 ? kTypes : kE4m3);", "c.type = random.below(2) ? kBfloat16 : kFloat;"),
        ("c.op = random.below(2) ? (int)kSum : (int)random.below(kOps);", "c.op = random.below(4) ? kSum : kAvg;"),
        ("c.bytes = (size_t)exp2(2 + 22 * random.unit());", "c.bytes = (size_t)64 << 2 * random.below(7);"),
        ("c.whole = random.below(2);", "c.whole = true;"),
        (".call.kind = kSendRecv;", ".call.kind = kAllReduce;"),
    ],
    "mix_comms.h": [
        ("newSplit(all[kWorld], rank < options.ranks / 2, rank,", "newWorld(rank,"),
        ("newSplit(all[kWorld2], rank % 2, -rank,", "newWorld(rank,"),
    ],
}


def translate(name, text):
    for old, new in CHANGES.get(name, ()):
        if text.count(old) != 1:
            sys.exit(f"{name}: {old!r} is there {text.count(old)} times, want once")
        text = text.replace(old, new)
    return re.sub(r"(\w+)<<<(.*?),\s*0,\s*([^,]*?)>>>\(", r"(mixBehind(\3), \1)(", text, flags=re.S)


def main(to):
    os.makedirs(to, exist_ok=True)
    for path in glob.glob(os.path.join(MIX, "mix*.h")) + [os.path.join(MIX, "mix.cu")]:
        name = os.path.basename(path)
        with open(path) as f, open(os.path.join(to, name.replace(".cu", ".cc")), "w") as made:
            made.write(translate(name, f.read()))


main(sys.argv[1])
