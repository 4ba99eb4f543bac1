"""The timed loop of the training examples."""
import math
import sys
import time

import torch
import torch.distributed as dist

import common
import kernels
import threads

PROGRESS_S = 5


def flags(parser):
    parser.add_argument("--steps", type=int, default=30, help="steps that are timed (30)")
    parser.add_argument("--warmup", type=int, default=10, help="steps before them (10)")
    parser.add_argument("--seed", type=int, default=1, help="of weights and tokens (1)")
    parser.add_argument("--check", action="store_true", help="fail unless all ranks end with the same parameters")
    parser.add_argument("--kernels", type=int, default=0, help="steps behind them of which rank 0 says what its GPU's time went to, and of all what lies between kernels (0)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: gloo, to try tiny shapes")


def train(args, device, step):
    """Times step(tokens), which returns the loss: (quartiles of microseconds and what this rank's host did, last loss as the mean of all ranks)."""
    if args.steps < 2:
        raise SystemExit(f"--steps {args.steps}: quartiles need at least 2")
    if args.kernels > 0 and device.type != "cuda":
        raise SystemExit(f"--kernels {args.kernels} with --device {device.type}: there are no kernels to tell of; it needs a GPU")
    random = torch.Generator(device).manual_seed(args.seed * 1000 + dist.get_rank())
    watch = common.Stopwatch(device)
    said = time.monotonic()
    tokens = lambda: torch.randint(args.vocabulary, (args.batch, args.sequence), device=device, generator=random)
    for i in range(args.warmup + args.steps):
        if dist.get_rank() == 0 and time.monotonic() - said > PROGRESS_S:
            said = time.monotonic()
            print(f"step {i + 1} of {args.warmup + args.steps} begins on the host", file=sys.stderr, flush=True)
        if i == args.warmup:
            common.synchronize(device)
            began, before = time.perf_counter(), threads.now()
            watch.mark()
        loss = step(tokens())
        if i >= args.warmup:
            watch.mark()
    host = {"step_us": round((time.perf_counter() - began) * 1e6 / args.steps, 1), "threads": threads.between(before, threads.now(), args.steps)}
    times = common.quartiles(watch.intervals_us()) | {"host": host}
    if args.kernels > 0:
        times["kernels"] = kernels.profiled(lambda: step(tokens()), args.kernels, lambda: common.synchronize(device))
        gap = torch.tensor([times["kernels"].get("gap_us", 0)], dtype=torch.float64, device=device)
        times["kernels"]["gap_us"] = common.of_all(gap).flatten().tolist()
    loss = loss.detach().double()
    dist.all_reduce(loss)
    return times, loss.item() / dist.get_world_size()


def show(program, args, device, times, loss, parameters, **more):
    """One line for people, one JSON line; the exit code is 1 when a check has failed."""
    right = math.isfinite(loss) and more.get("same", True)
    if dist.get_rank() == 0:
        print(f"{program}: {times['median_us'] / 1e3:.2f} ms a step, quartiles {times['p25_us'] / 1e3:.2f} and {times['p75_us'] / 1e3:.2f}, "
              f"{args.steps} steps, {parameters / 1e6:.0f}M parameters, final loss {loss:.4f}", flush=True)
    common.show(program=program, **common.describe(device), layers=args.layers, hidden=args.hidden, heads=args.heads,
                sequence=args.sequence, batch=args.batch, parameters=parameters, steps=args.steps, warmup=args.warmup, seed=args.seed,
                **times, final_loss=round(loss, 6), **more, wrong=0 if right else 1)
    return 0 if right else 1
