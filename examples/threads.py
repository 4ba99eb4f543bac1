"""What a step's time on the host goes to, by thread: running, and waiting for a CPU. Linux says it (/proc/PID/task/TID/schedstat)."""
import os


def now(folder="/proc/self/task"):
    """Of each thread by its number: its name, ns that it has run, ns that it has waited for a CPU, how often it got one. Nothing where nobody says."""
    threads = {}
    for thread in os.listdir(folder) if os.path.isdir(folder) else []:
        try:
            with open(os.path.join(folder, thread, "comm")) as name, open(os.path.join(folder, thread, "schedstat")) as counts:
                threads[thread] = (name.read().strip(), *map(int, counts.read().split()))
        except OSError:
            pass  # it has ended
    return threads


def between(before, after, steps, most=6):
    """us a step of each of the busiest threads that were there before, and how often it got a CPU; the busiest first."""
    spent = [(name, *(new - old for new, old in zip(counts, before[thread][1:]))) for thread, (name, *counts) in after.items() if thread in before]
    return [{"thread": name, "runs_us": round(runs / 1e3 / steps, 1), "waits_us": round(waits / 1e3 / steps, 1), "turns": round(turns / steps, 1)}
            for name, runs, waits, turns in sorted(spent, key=lambda thread: -thread[1])[:most]]
