"""Sums the largest values of a gradient over the ranks of an MPI job.

    mpirun -n 4 build/python/bin/python examples/mpi4py_allreduce.py

mpi4py starts the ranks and lets them find each other; the gradients travel by tulle, over TCP.
"""
import numpy as np
from mpi4py import MPI

import tulle

world = MPI.COMM_WORLD
gradient = np.random.default_rng(world.rank).standard_normal(1_000_000).astype(np.float32)
residual = np.zeros_like(gradient)

for step in range(3):
    residual += gradient
    update = tulle.allreduce_top_k(residual, density=0.001, comm=world)  # what is not delivered stays in residual
    if world.rank == 0:
        print(f"step {step}: {update.nnz} values by {update.outcome.algorithm}, {update.outcome.bytes_sent} bytes sent")
