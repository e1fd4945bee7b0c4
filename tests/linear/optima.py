#!/usr/bin/python3
"""The minimum of the mean loss and penalty of `tulle train linear`, in double, by accelerated proximal gradients (FISTA
with restarts) on all rows. Needs numpy and scipy. The optima that real_data_test.cpp stores are from

    tests/linear/optima.py a9a.xz logistic 0 1e-4
    tests/linear/optima.py a9a.xz squared_hinge 0 1e-4
    tests/linear/optima.py a9a.xz squares 0 1e-4
    tests/linear/optima.py a9a.xz squares 1e-3 0
"""
import lzma
import sys

import numpy
import scipy.sparse


def read_rows(path):
    labels, indices, values, begins = [], [], [], [0]
    for line in lzma.open(path, "rt") if path.endswith(".xz") else open(path):
        words = line.split()
        if not words:
            continue
        labels.append(float(words[0]))
        for word in words[1:]:
            index, value = word.split(":")
            indices.append(int(index) - 1)
            values.append(float(value))
        begins.append(len(indices))
    return scipy.sparse.csr_matrix((values, indices, begins)), numpy.array(labels)


LOSSES = {  # value, slope, the most that the second derivative can be
    "logistic": (lambda m, y: numpy.logaddexp(0, -y * m), lambda m, y: -y / (1 + numpy.exp(y * m)), 0.25),
    "squared_hinge": (lambda m, y: numpy.maximum(0, 1 - y * m) ** 2, lambda m, y: -2 * y * numpy.maximum(0, 1 - y * m), 2),
    "squares": (lambda m, y: (m - y) ** 2 / 2, lambda m, y: m - y, 1),
}


def optimum(rows, labels, loss, l1, l2, steps=200000):
    value, slope, curvature = LOSSES[loss]
    matrix = scipy.sparse.hstack([rows, numpy.ones((rows.shape[0], 1))]).tocsr()
    transposed = matrix.T.tocsr()
    count, size = matrix.shape
    penalized = numpy.ones(size)
    penalized[-1] = 0  # the intercept
    bound = numpy.linalg.eigvalsh((transposed @ matrix).toarray() / count).max() * curvature + l2

    def objective(weights):
        return (value(matrix @ weights, labels).mean() + l1 * numpy.abs(penalized * weights).sum()
                + l2 / 2 * (penalized * weights ** 2).sum())

    weights = ahead = numpy.zeros(size)
    momentum, best = 1.0, numpy.inf
    for step in range(steps):
        gradient = transposed @ slope(matrix @ ahead, labels) / count + l2 * penalized * ahead
        moved = ahead - gradient / bound
        moved = numpy.sign(moved) * numpy.maximum(numpy.abs(moved) - l1 * penalized / bound, 0)
        if (ahead - moved) @ (moved - weights) > 0:
            momentum = 1.0
        larger = (1 + numpy.sqrt(1 + 4 * momentum ** 2)) / 2
        ahead = moved + (momentum - 1) / larger * (moved - weights)
        weights, momentum = moved, larger
        if step % 500 == 499:
            now = objective(weights)
            if now > best * (1 - 1e-9):
                break
            best = now
    return objective(weights), numpy.count_nonzero(weights[:-1])


if __name__ == "__main__":
    path, loss, l1, l2 = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    least, nonzeros = optimum(*read_rows(path), loss, l1, l2)
    print(f"{loss} l1={l1} l2={l2}: {least:.6f}, {nonzeros} weights are not 0")
