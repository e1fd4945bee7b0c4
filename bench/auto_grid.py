"""How far auto is from the fastest row in every cell of scripts/auto_grid's rows."""

import collections
import json
import statistics
import sys

CLOSE = 1.15  # of the fastest row
DENSE = 1.3   # of the best dense row


def lines_of(path):
    with open(path) as lines:
        for line in lines:
            row = json.loads(line)
            yield (row["ranks"], row["dimension"], row["density"]), row


def cells_of(path):
    cells = collections.defaultdict(dict)
    for cell, row in lines_of(path):
        cells[cell][row["algorithm"]] = row
    return cells


def cold_seconds(path):
    """Of calls that know nothing yet, by cell: the median of the runs' medians."""
    runs = collections.defaultdict(list)
    for cell, row in lines_of(path):
        runs[cell].append(row["seconds_median"])
    return {cell: statistics.median(seconds) for cell, seconds in runs.items()}


def fastest(rows, wanted):
    names = [name for name in rows if name not in ("auto", "mpi_native") and wanted(name)]
    return min((rows[name]["seconds_median"], name) for name in names)


def main(path, cold_path):
    close = close_cold = within_dense = 0
    cells, cold = cells_of(path), cold_seconds(cold_path)
    print(f"{'P':>3} {'N':>9} {'density':>8}  {'auto':<24} {'us':>10}  {'fastest row':<24} {'us':>10} {'ratio':>6} {'cold':>6} "
          f"{'to dense':>8}")
    for cell, rows in sorted(cells.items()):
        ranks, dimension, density = cell
        auto = rows["auto"]
        best, best_name = fastest(rows, lambda name: True)
        dense, _ = fastest(rows, lambda name: name.startswith("dense"))
        ratio, to_dense, when_cold = auto["seconds_median"] / best, auto["seconds_median"] / dense, cold[cell] / best
        close += ratio <= CLOSE
        close_cold += when_cold <= CLOSE
        within_dense += to_dense <= DENSE
        mark = "" if ratio <= CLOSE and to_dense <= DENSE and when_cold <= CLOSE else "  <"
        print(f"{ranks:>3} {dimension:>9} {density:>8g}  {auto['chosen']:<24} {auto['seconds_median'] * 1e6:>10.1f}  "
              f"{best_name:<24} {best * 1e6:>10.1f} {ratio:>6.2f} {when_cold:>6.2f} {to_dense:>8.2f}{mark}")
    print(f"\nwithin {CLOSE - 1:.0%} of the fastest row in {close} of {len(cells)} cells ({close / len(cells):.0%}), from the "
          f"third to the tenth call in {close_cold}; at most {DENSE} times the best dense row in {within_dense}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
