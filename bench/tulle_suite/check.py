"""The regression guard: speeds as ratios within one run, held against a committed baseline.

A ratio is how many times faster something is than its rival in the same run, so a slow or busy machine changes both.
What seems to have fallen is measured again before it is named, because the machine may have been disturbed just then.
"""

TOLERANCE = 0.2
TRIES = 4  # of a ratio that has fallen; noise passes one of them, a regression none
DENSITIES = ("0.001", "0.01", "0.1")


def measure_kernels(tulle, kernels):
    """Merges and sums against the obvious loops."""
    return {f"kernel: {row['name']}, against {row['rival']}": row["ratio"] for row in kernels.rows()}


def measure_allreduce(tulle, kernels):
    """Rows of the registry against the best dense one, on two threads."""
    rows = tulle.rows("bench", "allreduce", "--transport", "threads", "--ranks", "2", "--dimension", "2^22",
                      "--repeats", "25", "--density", *DENSITIES)
    dense = {density: min(row["seconds_median"] for row in rows
                          if row["density"] == density and row["algorithm"].startswith("dense_"))
             for density in {row["density"] for row in rows}}
    return {f"allreduce: {row['algorithm']} at {row['density']}, against the best dense row":
            dense[row["density"]] / row["seconds_median"] for row in rows if row["algorithm"] != "auto"}


def measure_others(kind, rival, *flags):
    """Rows of `tulle bench select` or `codec`, which hold their ratio; not those that only pass pointers on."""

    def measure(tulle, kernels):
        rows = tulle.rows("bench", kind, *flags) if tulle.has(("bench", kind)) else []
        return {f"{kind}: {_name(row)}, against {rival}": 1 / row["ratio"] for row in rows
                if (row["ratio"] or 0) > 0.1 and row.get(kind) != rival}

    return measure


GROUPS = (measure_kernels, measure_allreduce,
          measure_others("select", "a read pass", "--count", "14700000", "--values", "gaussian", "--density", "0.001"),
          measure_others("codec", "memcpy", "--count", "14700000", "--values", "gaussian", "--density", "0.01"))


def _name(row):
    words = (row.get(field) for field in ("selector", "asked_for", "codec", "direction", "case"))
    return " ".join(word for word in words if word)


def fallen(ratios, baseline):
    """The names whose ratio is more than the tolerance below the baseline's."""
    return {name for name, ratio in ratios.items() if name in baseline and ratio < (1 - TOLERANCE) * baseline[name]}


def measure_until_sure(measure, baseline, say):
    """The best ratio of each name that `measure()` gives, again as long as one has fallen and tries are left."""
    best = measure()
    for _ in range(TRIES - 1):
        suspects = fallen(best, baseline)
        if not suspects:
            break
        say(f"again, because of {len(suspects)}: {', '.join(sorted(suspects))}")
        for name, ratio in measure().items():
            best[name] = max(ratio, best.get(name, ratio))
    return best


def median_of_runs(measure, runs=3):
    """What goes into a baseline: of several runs, the middle ratio of each name."""
    found = [measure() for _ in range(runs)]
    return {name: sorted(ratios[name] for ratios in found)[runs // 2] for name in found[0]}


def compare(ratios, baseline):
    """Lines that say what fell, what is gone, and what is new; and whether something fell or is gone."""
    lines = [f"fell: {name}: {ratios[name]:.2f}, was {baseline[name]:.2f} ({ratios[name] / baseline[name] - 1:+.0%})"
             for name in sorted(fallen(ratios, baseline))]
    lines += [f"gone: {name}, was {baseline[name]:.2f}" for name in sorted(set(baseline) - set(ratios))]
    is_bad = bool(lines)
    lines += [f"new: {name}: {ratios[name]:.2f}" for name in sorted(set(ratios) - set(baseline))]
    return lines, is_bad
