"""How far auto is from the fastest row in every cell of scripts/auto_grid's rows."""

import collections
import json
import sys

CLOSE = 1.15  # of the fastest row
DENSE = 1.3   # of the best dense row


def cells_of(path):
    cells = collections.defaultdict(dict)
    with open(path) as lines:
        for line in lines:
            row = json.loads(line)
            cells[row["ranks"], row["dimension"], row["density"]][row["algorithm"]] = row
    return cells


def fastest(rows, wanted):
    names = [name for name in rows if name not in ("auto", "mpi_native") and wanted(name)]
    return min((rows[name]["seconds_median"], name) for name in names)


def main(path):
    close = within_dense = 0
    cells = cells_of(path)
    print(f"{'P':>3} {'N':>9} {'density':>8}  {'auto':<24} {'us':>10}  {'fastest row':<24} {'us':>10} {'ratio':>6} {'to dense':>8}")
    for (ranks, dimension, density), rows in sorted(cells.items()):
        auto = rows["auto"]
        best, best_name = fastest(rows, lambda name: True)
        dense, _ = fastest(rows, lambda name: name.startswith("dense"))
        ratio, to_dense = auto["seconds_median"] / best, auto["seconds_median"] / dense
        close += ratio <= CLOSE
        within_dense += to_dense <= DENSE
        mark = "" if ratio <= CLOSE and to_dense <= DENSE else "  <"
        print(f"{ranks:>3} {dimension:>9} {density:>8g}  {auto['chosen']:<24} {auto['seconds_median'] * 1e6:>10.1f}  "
              f"{best_name:<24} {best * 1e6:>10.1f} {ratio:>6.2f} {to_dense:>8.2f}{mark}")
    print(f"\nwithin {CLOSE - 1:.0%} of the fastest row in {close} of {len(cells)} cells ({close / len(cells):.0%}); "
          f"at most {DENSE} times the best dense row in {within_dense}")


if __name__ == "__main__":
    main(sys.argv[1])
