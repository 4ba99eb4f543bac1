"""What program_bench.py knows of results: JSON lines of a program, and how arms compare over repetitions."""
import json
import math
import statistics

# Student's t, two-sided 95%, for 1 to 30 degrees of freedom (any table of the distribution).
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
       2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)
NORMAL95 = 1.960
INTERVAL = "Student's t on logarithms of the ratios, paired by repetition"


def json_line(line):
    """The object that a line of output holds, or None: programs print other things too."""
    line = line.strip()
    if not line.startswith("{"):
        return None
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def wrong(result, zero):
    """Which of the fields that must be 0 are there and are not; a check that was not made (null) says nothing."""
    return [name for name in zero if result.get(name) not in (None, 0)]


def t95(degrees):
    """Beyond the table, three terms of the expansion around the normal quantile (Cornish and Fisher, 1938)."""
    if degrees <= len(T95):
        return T95[degrees - 1]
    z = NORMAL95
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def mean_interval(values):
    """Mean and the half width of its 95% interval; no width for a single value."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    return mean, t95(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def by_key(runs, keys, metric):
    """{key: {repetition: median of the metric}}: a program may print several lines of one key."""
    found = {}
    for run in runs:
        for result in run["results"]:
            value = result.get(metric)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf:
                key = tuple(result.get(name) for name in keys)
                found.setdefault(key, {}).setdefault(run["repetition"], []).append(value)
    return {key: {r: statistics.median(v) for r, v in reps.items()} for key, reps in found.items()}


def speedup(logs):
    mean, half = mean_interval(logs)
    interval = None if half is None else [round(math.exp(mean - half), 4), round(math.exp(mean + half), 4)]
    return {"repetitions": len(logs), "speedup": round(math.exp(mean), 4), "speedup_interval95": interval}


def compare(base, arm, keys, metric):
    """How much faster the runs of arm are than those of base: a line for each key, then one for all keys together.

    A repetition counts where both arms have it. The metric is a time: a speed-up above 1 means that arm takes less.
    """
    base_of, arm_of = by_key(base, keys, metric), by_key(arm, keys, metric)
    lines, logs_of = [], {}
    for key, base_reps in base_of.items():
        arm_reps = arm_of.get(key, {})
        pairs = sorted(set(base_reps) & set(arm_reps))
        if not pairs:
            continue
        logs_of[key] = {r: math.log(base_reps[r] / arm_reps[r]) for r in pairs}
        medians = [statistics.median(reps[r] for r in pairs) for reps in (base_reps, arm_reps)]
        lines.append({"key": dict(zip(keys, key)), "base_median": medians[0], "arm_median": medians[1],
                      "ratio_of_medians": round(medians[0] / medians[1], 4), **speedup(list(logs_of[key].values()))})
    if len(lines) > 1:
        # Only repetitions that have every key: a mean over other keys would be another quantity.
        full = set.intersection(*(set(logs) for logs in logs_of.values()))
        if full:
            means = [statistics.fmean(logs[r] for logs in logs_of.values()) for r in sorted(full)]
            lines.append({"key": "geometric mean of all", "keys": len(lines), **speedup(means),
                          "slowest": min(lines, key=lambda line: line["speedup"])["key"],
                          "slowest_speedup": min(line["speedup"] for line in lines)})
    return lines
