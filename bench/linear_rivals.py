#!/usr/bin/python3
"""Seconds until the objective of logistic regression is within 2 % of its minimum, on one core: tulle train linear
beside scikit-learn's SGDClassifier and LIBLINEAR (which scikit-learn contains). Reading the data is not counted.

    bench/linear_rivals.py TULLE rows.tcsr [l2]
"""
import json
import struct
import subprocess
import sys
import tempfile
import time
import warnings

import numpy
import scipy.sparse
from sklearn.linear_model import LogisticRegression, SGDClassifier

MARGIN = 1.02
warnings.filterwarnings("ignore")  # of solvers that are stopped before they converge, on purpose


def read_rows(path):
    """The binary format of docs/linear.md."""
    data = open(path, "rb").read()
    rows, features, _, table, blocks = struct.unpack_from("<QQQQQ", data, 16)
    labels, lengths, indices, values = [], [], [], []
    for block in range(blocks):
        offset, _, count, nonzeros, _, is_binary = struct.unpack_from("<QQQQII", data, table + 40 * block)
        labels.append(numpy.frombuffer(data, "<f4", count, offset))
        lengths.append(numpy.frombuffer(data, "<u4", count, offset + 4 * count))
        indices.append(numpy.frombuffer(data, "<u4", nonzeros, offset + 8 * count))
        values.append(numpy.ones(nonzeros, "f4") if is_binary else
                      numpy.frombuffer(data, "<f4", nonzeros, offset + 8 * count + 4 * nonzeros))
    begins = numpy.concatenate([[0], numpy.cumsum(numpy.concatenate(lengths))])
    matrix = scipy.sparse.csr_matrix((numpy.concatenate(values).astype("f8"), numpy.concatenate(indices).astype("i4"), begins.astype("i4")),
                                     shape=(rows, features))
    return matrix, numpy.concatenate(labels)


def objective(matrix, labels, weights, intercept, l2):
    margins = labels * (matrix @ weights + intercept)
    return numpy.logaddexp(0, -margins).mean() + l2 / 2 * (weights ** 2).sum()


def liblinear(matrix, labels, l2, iterations):
    model = LogisticRegression(C=1 / (l2 * len(labels)), solver="liblinear", intercept_scaling=1, max_iter=iterations,
                               tol=1e-12)
    start = time.perf_counter()
    model.fit(matrix, labels)
    return time.perf_counter() - start, objective(matrix, labels, model.coef_[0], model.intercept_[0], l2)


def liblinear_seconds(matrix, labels, l2, target):
    for iterations in (1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 22, 30, 50, 100):
        seconds, reached = liblinear(matrix, labels, l2, iterations)
        if reached <= target:
            return seconds
    return float("inf")


def sgd_seconds(matrix, labels, l2, target):
    best = float("inf")
    for rate in (0.01, 0.03, 0.1, 0.2):  # its best
        model = SGDClassifier(loss="log_loss", alpha=l2, learning_rate="adaptive", eta0=rate, random_state=1)
        seconds = 0
        for _ in range(60):
            start = time.perf_counter()
            model.partial_fit(matrix, labels, classes=[-1, 1])
            seconds += time.perf_counter() - start
            if seconds > best or objective(matrix, labels, model.coef_[0], model.intercept_[0], l2) <= target:
                break
        else:
            continue
        best = min(best, seconds)
    return best


def tulle_seconds(tulle, path, l2, target, settings):
    """The best of several settings. --test on the same rows gives SGD's loss after the epoch; SCD's is exact anyway."""
    best = float("inf")
    for flags in settings:
        with tempfile.NamedTemporaryFile("r") as lines:
            subprocess.run([tulle, "train", "linear", "--data", path, "--test", path, "--ranks", "1", "--l2", str(l2),
                            "--epochs", "30", "--json", lines.name, *flags], check=True, stdout=subprocess.DEVNULL)
            for line in map(json.loads, lines):
                if line["held_out"]["loss"] + line["penalty"] <= target:
                    best = min(best, line["seconds"])
                    break
    return best


SGD = [["--batch", "10", "--rate", "0.1"], ["--batch", "50", "--rate", "0.1"], ["--batch", "10"], ["--batch", "10", "--rate", "0.3"],
       ["--batch", "10", "--schedule", "constant", "--rate", "1"], ["--batch", "10", "--schedule", "constant", "--rate", "2"],
       ["--batch", "1", "--schedule", "constant", "--rate", "0.1"],
       ["--batch", "1", "--schedule", "constant", "--rate", "0.03"]]
SCD = [["--solver", "scd", "--coordinates", "1000"]]


def main():
    tulle, path = sys.argv[1:3]
    l2 = float(sys.argv[3]) if len(sys.argv) > 3 else 1e-5
    matrix, labels = read_rows(path)
    _, minimum = liblinear(matrix, labels, l2, 100)
    target = MARGIN * minimum
    print(f"{path}: {matrix.shape[0]} rows, minimum {minimum:.5f} at l2 = {l2}; seconds to {target:.5f}")
    for name, seconds in (("tulle scd", tulle_seconds(tulle, path, l2, target, SCD)),
                          ("tulle sgd", tulle_seconds(tulle, path, l2, target, SGD)),
                          ("LIBLINEAR", liblinear_seconds(matrix, labels, l2, target)),
                          ("SGDClassifier", sgd_seconds(matrix, labels, l2, target))):
        print(f"  {name:14} {seconds:.3f}")


if __name__ == "__main__":
    main()
