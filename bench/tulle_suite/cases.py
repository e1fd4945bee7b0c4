"""What is measured: `short_suite()` takes minutes, `full_suite()` an hour or more.

A case is one run of one command. Comparisons of allreduce list densities, each of which can be done already; a case of
another command is done as a whole. Sizes on slow networks are what lets dense rows take about a second.
"""

from dataclasses import dataclass

RING, RABENSEIFNER = 4, 6  # Open MPI's numbers of allreduce algorithms

URL, WEBSPAM = ("url", 84000), ("webspam", 16800)  # data of SparCML's kinds and their rows


@dataclass(frozen=True)
class Network:
    """Where ranks run: `kind` is shm (mpirun on this machine), lab (with a rate) or sim."""

    kind: str
    rate: str = ""

    def __str__(self):
        return f"lab {self.rate}" if self.kind == "lab" else {"shm": "shared memory", "sim": "simulation"}[self.kind]


@dataclass(frozen=True)
class Case:
    """`rename` is for rows that another setting of MPI gave; `data` is a kind and a number of rows to generate."""

    command: tuple
    network: Network = None
    ranks: int = 0
    densities: tuple = ()
    flags: tuple = ()
    mpi_flags: str = ""
    rename: str = ""
    needs_flag: str = ""
    data: tuple = ()

    def __str__(self):
        words = [" ".join(self.command)]
        if self.network:
            words.append(f"{self.network}, P = {self.ranks}")
        return ", ".join([*words, *filter(None, (self.rename, "-".join(map(str, self.data)), " ".join(self.flags)))])


def comparison(network, ranks, dimension, densities, repeats, *flags, **others):
    """A comparison of all rows of the registry."""
    return Case(("bench", "allreduce"), network, ranks, tuple(densities),
                ("--dimension", dimension, "--repeats", str(repeats), *flags), **others)


def figure4(network, ranks, dimension, densities, repeats):
    """SparCML's Figure 4: on five data sets, as there. It has ten repeats on each, for which we have no time."""
    return comparison(network, ranks, dimension, densities, repeats, "--data-sets", "5", needs_flag="--data-sets")


def other_dense_rows(network, ranks, dimension, densities, repeats):
    """MPI's own allreduce by the algorithms that it does not choose by itself."""
    for name, number in (("mpi_native_ring", RING), ("mpi_native_rabenseifner", RABENSEIFNER)):
        yield comparison(network, ranks, dimension, densities, repeats, "--warmup", "1", "--algorithm", "mpi_native",
                         mpi_flags="--mca coll_tuned_use_dynamic_rules 1 "
                                   f"--mca coll_tuned_allreduce_algorithm {number}", rename=name)


def quantized(network, ranks, dimension, repeats):
    """Sums that travel in 4 bits, where the result is dense."""
    return comparison(network, ranks, dimension, (0.1,), repeats, "--algorithm", "dsar_split_allgather",
                      "--value-coding", "qsgd:bits=4", needs_flag="--value-coding")


def selecting_rows(network, ranks, dimension, repeats):
    """SparDL's Table 1 and its Figure 7: rows that select while they communicate, and teams that divide the ranks."""
    for teams in (count for count in (1, 2, 3) if ranks % count == 0):
        names = () if teams == 1 else ("--algorithm", "spardl")
        yield Case(("bench", "allreduce"), network, ranks, (),
                   ("--dimension", dimension, "--repeats", str(repeats), "--k", "1%", "--teams", str(teams), *names),
                   needs_flag="--k")


def linear_epochs(network, ranks, epochs, data):
    """SparCML's Table 2: passes over data of its kind, with dense and with sparse sums."""
    return Case(("train", "linear"), network, ranks, (),
                ("--model", "logistic", "--hold-out", "5%", "--epochs", str(epochs), "--aggregation", "dense,auto"),
                data=data)


SHM, SIM = Network("shm"), Network("sim")
GIGABIT, FAST_ETHERNET = Network("lab", "1gbit"), Network("lab", "100mbit")
COMMON = (Case(("bench", "select"), flags=("--count", "14700000")), Case(("bench", "codec")))


def short_suite():
    densities = (0.001, 0.01, 0.1)
    yield from COMMON
    for ranks in (4, 16, 64):
        yield comparison(SIM, ranks, "2^20", densities, 1)
    for ranks in (2, 4):
        yield comparison(SHM, ranks, "2^22", densities, 7)
    yield comparison(FAST_ETHERNET, 8, "2^20", densities, 3, "--warmup", "1")
    yield comparison(GIGABIT, 8, "2^24", densities, 3, "--warmup", "1")
    yield from other_dense_rows(GIGABIT, 8, "2^24", densities, 3)
    yield quantized(GIGABIT, 8, "2^24", 3)
    for ranks in (6, 8):
        yield from selecting_rows(SIM, ranks, "2^20", 1)
    yield linear_epochs(GIGABIT, 8, 3, URL)


def full_suite():
    densities = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
    yield from COMMON
    for ranks in (2, 4, 8, 16, 32, 64, 128):
        yield comparison(SIM, ranks, "2^20", densities, 1)
    for ranks in (2, 3, 4):
        yield figure4(SHM, ranks, "2^24", densities, 2)
    for dimension in ("2^20", "2^24"):
        for ranks in (2, 4, 8):
            yield figure4(GIGABIT, ranks, dimension, densities, 1)
            yield from other_dense_rows(GIGABIT, ranks, dimension, densities, 5)
    for ranks in (2, 4, 8):
        yield comparison(FAST_ETHERNET, ranks, "2^20", densities, 5)
        yield quantized(GIGABIT, ranks, "2^24", 5)
    for kind in ("identical", "disjoint", "zipf"):
        yield comparison(GIGABIT, 8, "2^22", densities, 5, "--overlap", kind)
    yield comparison(GIGABIT, 8, "2^22", densities, 5, "--type", "f64")
    for ranks in (4, 5, 6, 8):
        yield from selecting_rows(SIM, ranks, "2^24", 1)
        yield from selecting_rows(GIGABIT, ranks, "2^22", 5)
    for network, ranks in ((SHM, 4), (GIGABIT, 8), (FAST_ETHERNET, 8)):
        for data in (URL, WEBSPAM):
            yield linear_epochs(network, ranks, 10, data)


SUITES = {"short": short_suite, "full": full_suite}
