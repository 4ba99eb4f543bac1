#!/usr/bin/env python3
"""A tensor-parallel decode step, as a server of language models runs it: one CUDA graph a batch size. How long is a replay?

  torchrun --nproc-per-node 4 examples/decode.py --shapes 8b,70b --batches 1,8,32

Every layer is RMSNorm, grouped-query attention over a KV cache, RMSNorm and a gated MLP in Llama's shape; the heads and the
MLP are split over the ranks, so each layer has two all-reduces of [batch, hidden] in bf16. Weights are random, and what is no
layer (embedding, positions, sampling) is left out. 70b is 20 of its 80 layers. --compile has torch.compile make one kernel of
what stands between matrices, as servers have: a residual's sum and the norm behind it, and the MLP's gate.
"""
import argparse
import gc
import math
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F

import common

DTYPE = torch.bfloat16


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int

    @property
    def head(self):
        return self.hidden // self.heads


SHAPES = {
    "8b": Shape(layers=32, hidden=4096, ffn=14336, heads=32, kv_heads=8),
    "70b": Shape(layers=20, hidden=8192, ffn=28672, heads=64, kv_heads=8),
    "tiny": Shape(layers=2, hidden=64, ffn=96, heads=8, kv_heads=4),  # to try the program
}


def gate(both):
    left, right = both.chunk(2, dim=1)
    return F.silu(left) * right


def add_and_norm(x, part, weight):
    x = x + part
    return x, F.rms_norm(x, weight.shape, weight)


class Layer:
    """One rank's part of a layer. q, k and v share a matrix, and so do the two halves of the gated MLP's way up."""

    def __init__(self, shape, ranks, batch, positions, device, random, between):
        def weight(rows, columns, fan_in):
            return torch.randn(rows, columns, dtype=DTYPE, device=device, generator=random) / math.sqrt(fan_in)

        self.gate, self.add_and_norm = between
        self.heads, self.kv_heads, self.head = shape.heads // ranks, shape.kv_heads // ranks, shape.head
        own = self.heads * shape.head
        self.qkv = weight(own + 2 * self.kv_heads * shape.head, shape.hidden, shape.hidden)
        self.out = weight(shape.hidden, own, shape.hidden)
        self.up = weight(2 * shape.ffn // ranks, shape.hidden, shape.hidden)
        self.down = weight(shape.hidden, shape.ffn // ranks, shape.ffn)
        self.norm1, self.norm2 = (torch.ones(shape.hidden, dtype=DTYPE, device=device) for _ in range(2))
        # [keys and values, batch, heads, positions, head]
        self.cache = torch.randn(2, batch, self.kv_heads, positions, shape.head, dtype=DTYPE, device=device, generator=random)

    def attention(self, x):  # [batch, hidden] -> this rank's part of [batch, hidden]
        batch = x.shape[0]
        kv = self.kv_heads * self.head
        q, k, v = F.linear(x, self.qkv).split((self.heads * self.head, kv, kv), dim=1)
        if self.cache.shape[3] == 0:
            return F.linear(q, self.out)
        keys, values = self.cache[0, :batch], self.cache[1, :batch]
        keys[:, :, -1] = k.view(batch, self.kv_heads, self.head)  # the token's own position is the last one
        values[:, :, -1] = v.view(batch, self.kv_heads, self.head)
        # The queries that share a key head stand where a sequence's would: every one of them sees all positions.
        q = q.view(batch, self.kv_heads, self.heads // self.kv_heads, self.head)
        return F.linear(F.scaled_dot_product_attention(q, keys, values).reshape(batch, -1), self.out)

    def mlp(self, x):  # the same
        return F.linear(self.gate(F.linear(x, self.up)), self.down)

    def __call__(self, x, normed, next_norm):  # [batch, hidden], the same on every rank
        part = self.attention(normed)
        dist.all_reduce(part)
        x, normed = self.add_and_norm(x, part, self.norm2)
        part = self.mlp(normed)
        dist.all_reduce(part)
        return self.add_and_norm(x, part, next_norm)


class Step:
    """The step of one batch size: as calls, or as a graph that was captured of them."""

    def __init__(self, layers, batch, hidden, device, random):
        self.layers, self.device = layers, device
        # A layer's last sum takes the next one's norm with it, the last layer's that of the model.
        self.norms = [layer.norm1 for layer in layers[1:]] + [torch.ones(hidden, dtype=DTYPE, device=device)]
        self.input = torch.randn(batch, hidden, dtype=DTYPE, device=device, generator=random)
        self.graph, self.output = None, None

    def eager(self):
        x, first = self.input, self.layers[0].norm1
        normed = F.rms_norm(x, first.shape, first)
        for layer, norm in zip(self.layers, self.norms):
            x, normed = layer(x, normed, norm)
        return normed

    def capture(self, eager_steps, pool):
        """A few steps on another stream first, so that what libraries do at a first call is not captured."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(eager_steps):
                self.eager()
        torch.cuda.current_stream().wait_stream(stream)
        common.synchronize(self.device)
        dist.barrier()
        common.synchronize(self.device)
        self.graph = torch.cuda.CUDAGraph()
        # thread_local: NCCL's watchdog thread of PyTorch asks for events meanwhile.
        with torch.cuda.graph(self.graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            self.output = self.eager()

    def run(self):
        if self.graph:
            self.graph.replay()
        else:
            self.output = self.eager()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="8b,70b", help=f"some of {', '.join(SHAPES)} (8b,70b)")
    parser.add_argument("--batches", default="1,8,32", help="sequences that are decoded together (1,8,32)")
    parser.add_argument("--positions", type=int, default=1024, help="length of the KV cache; 0: matrices, norms and all-reduces alone (1024)")
    parser.add_argument("--eager-steps", type=int, default=3, help="steps without a graph before each capture (3)")
    parser.add_argument("--warm", type=int, default=300, help="replays before those that are timed, for the clocks (300)")
    parser.add_argument("--replays", type=int, default=200, help="replays that are timed, in a round (200)")
    parser.add_argument("--rounds", type=int, default=1, help="times that all batches are measured in turn (1)")
    parser.add_argument("--seed", type=int, default=1, help="of weights and inputs (1)")
    parser.add_argument("--compile", action="store_true", help="norms, sums and gates as one kernel each, by torch.compile")
    parser.add_argument("--no-graph", action="store_true", help="time the calls themselves")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: gloo and no graph, to try the tiny shape")
    args = parser.parse_args()
    args.shapes, args.batches = args.shapes.split(","), [int(b) for b in args.batches.split(",")]
    if unknown := set(args.shapes) - set(SHAPES):
        parser.error(f"no shape {', '.join(sorted(unknown))}; there are {', '.join(SHAPES)}")
    if args.replays < 2 or args.eager_steps < 1:
        parser.error("--replays must be at least 2 and --eager-steps at least 1")
    return args


def spread(step):
    """How far the ranks' outputs are apart, relative to their size: all-reduced in other orders they may differ by rounding."""
    low, high = step.output.float(), step.output.float()
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
    dist.all_reduce(high, op=dist.ReduceOp.MAX)
    return ((high - low).abs().max() / high.abs().mean()).item()


def distance(got, want):
    return ((got.float() - want.float()).norm() / want.float().norm()).item()


def compiled(shape, ranks, batches, device):
    """gate and add_and_norm as one kernel each. All are made before the first collective, whose ranks would wait for the slowest."""
    torch._dynamo.config.recompile_limit = 2 * len(batches) + 8
    between = tuple(torch.compile(f, dynamic=False) for f in (gate, add_and_norm))
    for batch in batches:
        x, both = (torch.zeros(batch, n, dtype=DTYPE, device=device) for n in (shape.hidden, 2 * shape.ffn // ranks))
        between[0](both)
        between[1](x, x, torch.ones(shape.hidden, dtype=DTYPE, device=device))
    dist.barrier()
    return between


def measure(name, args, device):
    """Prints a line for each batch and round; returns whether all outputs are what they should be."""
    shape, ranks = SHAPES[name], dist.get_world_size()
    if shape.kv_heads % ranks:
        raise SystemExit(f"{name} has {shape.kv_heads} key heads, which {ranks} ranks cannot share evenly")
    own, shared = torch.Generator(device), torch.Generator(device)
    own.manual_seed(args.seed * 1000 + dist.get_rank())
    shared.manual_seed(args.seed)
    between = compiled(shape, ranks, args.batches, device) if args.compile else (gate, add_and_norm)
    layers = [Layer(shape, ranks, max(args.batches), args.positions, device, own, between) for _ in range(shape.layers)]
    steps = {batch: Step(layers, batch, shape.hidden, device, shared) for batch in args.batches}
    graphs = device.type == "cuda" and not args.no_graph
    if graphs:
        pool = torch.cuda.graph_pool_handle()
        for batch in sorted(steps, reverse=True):  # the largest first: the others fit into its memory
            steps[batch].capture(args.eager_steps, pool)
    right = True
    for round_ in range(args.rounds):
        for batch, step in steps.items():
            for _ in range(args.warm):
                step.run()
            watch = common.Stopwatch(device)
            watch.mark()
            for _ in range(args.replays):
                step.run()
                watch.mark()
            times = common.quartiles(watch.intervals_us())
            apart, off = spread(step), distance(step.output, step.eager())
            # bf16 keeps 8 bits: two orders of summing over this many layers stay well under these bounds.
            ok = apart < 0.25 and off < 0.05
            right = right and ok
            common.show(program="decode", **common.describe(device), shape=name, layers=shape.layers, hidden=shape.hidden, batch=batch,
                        positions=args.positions, compiled=args.compile, graph=graphs, round=round_, replays=args.replays, **times,
                        ranks_apart=round(apart, 5), off_eager=round(off, 5), wrong=0 if ok else 1)
    # Graphs first: NCCL keeps a communicator for as long as a graph uses it.
    steps.clear()
    del step
    gc.collect()
    if device.type == "cuda":
        common.synchronize(device)
        torch.cuda.empty_cache()
    return right


def main():
    args = parse()
    device = common.join(args.device)
    with torch.inference_mode():
        right = [measure(name, args, device) for name in args.shapes]
    common.leave()
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
