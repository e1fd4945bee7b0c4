"""Collectives on threads: results, bits, options, errors."""
import gc
import os
import signal
import threading
import time
import weakref

import numpy as np
import pytest

import tulle

TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i32": np.int32, "i64": np.int64}


def inputs(ranks, name, dimension=1000, nnz=40):
    """Small integers, so that sums are exact in every type."""
    random = np.random.default_rng(7)
    made = []
    for _ in range(ranks):
        dense = np.zeros(dimension, TYPES[name])
        dense[random.choice(dimension, nnz, replace=False)] = random.integers(1, 9, nnz)
        made.append(dense)
    return made


def is_gone(reference):
    """Waits for a thread without the GIL that may have had the last handle."""
    until = time.monotonic() + 20
    while reference() is not None and time.monotonic() < until:
        gc.collect()
        time.sleep(0.001)
    return reference() is None


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("name", TYPES)
def test_sums_equal_those_of_numpy(name, ranks):
    data = inputs(ranks, name)
    expected = np.sum(data, axis=0, dtype=TYPES[name])

    def function(comm):
        mine = data[comm.rank]
        stream = tulle.Stream.from_dense(mine)
        return (
            tulle.allreduce(stream, comm=comm),
            tulle.allgather(stream, comm=comm),
            tulle.reduce_scatter(stream, comm=comm),
            tulle.reduce(stream, root=ranks - 1, comm=comm),
            tulle.broadcast(stream, root=ranks - 1, comm=comm),
            tulle.allreduce(mine.copy(), comm=comm),
        )

    results = tulle.threads(ranks, function)
    for rank, (total, union, block, rooted, sent, dense) in enumerate(results):
        begin, end = block.range
        assert total.outcome.algorithm in {row["name"] for row in tulle.algorithms()}
        assert np.array_equal(total.to_dense(), expected)
        assert np.array_equal(union.to_dense(), expected)
        assert np.array_equal(block.to_dense(), expected[begin:end])
        assert np.array_equal(rooted.to_dense(), expected if rank == ranks - 1 else np.zeros_like(expected))
        assert np.array_equal(sent.to_dense(), data[ranks - 1])
        assert np.array_equal(dense, expected)
    assert [block.range[0] for _, _, block, *_ in results][0] == 0 and results[-1][2].range[1] == 1000


def test_bf16_is_summed():
    ones = np.full(4, 0x3F80, np.uint16)
    assert tulle.threads(3, lambda comm: tulle.allreduce(ones.copy(), type="bf16", comm=comm))[0].tolist() == [0x4040] * 4


def test_every_rank_has_the_same_bits_and_the_caller_its_own_data():
    random = np.random.default_rng(3)
    data = [random.standard_normal(5000).astype(np.float32) for _ in range(4)]
    kept = [each.copy() for each in data]
    rows = [row["name"] for row in tulle.algorithms() if row["kind"] == "allreduce" and row["takes"] == "stream"]

    def function(comm):
        streams = [tulle.Stream.from_dense(data[comm.rank]) for _ in rows]
        return [
            tulle.allreduce(stream, algorithm=row, comm=comm).to_dense().tobytes()
            for stream, row in zip(streams, rows)
            if row != "mpi_native"
        ]

    results = tulle.threads(4, function)
    assert all(each == results[0] for each in results)
    assert all(np.array_equal(a, b) for a, b in zip(data, kept))


@pytest.mark.parametrize("op, reduced", [("prod", np.prod), ("min", np.min), ("max", np.max)])
def test_other_ops(op, reduced):
    data = np.array([[2.0, 3.0], [5.0, 0.5], [4.0, 1.0]])
    got = tulle.threads(3, lambda comm: tulle.allreduce(data[comm.rank].copy(), op=op, comm=comm))
    assert np.array_equal(got[2], reduced(data, axis=0))


def test_top_k_loses_nothing():
    random = np.random.default_rng(5)
    data = [random.standard_normal(2000) for _ in range(4)]
    before = np.sum(data, axis=0)

    def function(comm):
        state = tulle.State()
        total = np.zeros(2000)
        for _ in range(3):
            result = tulle.allreduce_top_k(data[comm.rank], density=0.01, algorithm="oktopk", state=state, comm=comm)
            assert result.outcome.delivered.tolist() == result.to_sparse().indices.tolist()
            total += result.to_dense()
        assert state.save() != tulle.State().save() == tulle.State.load(tulle.State().save()).save()
        return total

    totals = tulle.threads(4, function)
    assert np.array_equal(totals[0], totals[3])
    np.testing.assert_allclose(totals[0] + np.sum(data, axis=0), before, atol=1e-12)
    assert 0 < np.count_nonzero(totals[0]) < 400


def test_taken_is_what_left_the_array():
    def function(comm):
        mine = np.array([1.0, 8.0, 2.0, 4.0 + comm.rank])
        before = mine.copy()
        result = tulle.iallreduce_top_k(mine, k=2, algorithm="topka", comm=comm).wait()
        assert np.array_equal(before - result.outcome.taken.to_dense(), mine)

    tulle.threads(2, function)


def test_values_may_travel_in_fewer_bits():
    data = np.linspace(-1, 1, 512, dtype=np.float32)

    def function(comm):
        options = dict(algorithm="dsar_split_allgather", value_coding="qsgd:bits=8", seed=5)
        return tulle.allreduce(tulle.Stream.dense(data), comm=comm, **options)

    first, second = tulle.threads(2, function)
    assert first == second
    assert 0 < np.abs(first.to_dense() - 2 * data).max() < 0.5


def test_requests_may_overlap_and_end_in_any_order():
    def function(comm):
        arrays = [np.full(100, float(i)) for i in range(8)]
        requests = [tulle.iallreduce(array, comm=comm) for array in arrays]
        for request in reversed(requests):
            request.wait()
        assert all(request.test() for request in requests)
        assert requests[3].wait() is arrays[3]
        return [array[0] for array in arrays]

    assert tulle.threads(3, function)[1] == [3.0 * i for i in range(8)]


def test_channels_may_be_used_in_different_orders():
    def function(comm):
        order = [0, 1, 2] if comm.rank == 0 else [2, 1, 0]
        requests = {i: tulle.iallreduce(tulle.Stream([i], [1.0], 3), comm=comm.channel(i + 1)) for i in order}
        return [requests[i].wait().to_dense()[i] for i in range(3)]

    assert tulle.threads(2, function) == [[2.0] * 3] * 2


def test_a_request_keeps_its_arrays_alive_and_lets_them_go():
    gone = []

    def function(comm):
        array = np.ones(1000)
        indices, values = np.arange(10, dtype=np.uint32), np.ones(10)
        gone.extend(weakref.ref(each) for each in (array, indices, values))
        requests = [
            tulle.iallreduce(array, comm=comm),
            tulle.iallreduce(tulle.Stream(indices, values, 1000), comm=comm),
        ]
        del array, indices, values
        gc.collect()
        dense, sparse = (request.wait() for request in requests)
        return dense.sum(), sparse.values.sum()

    assert tulle.threads(2, function) == [(2000.0, 20.0)] * 2
    assert all(is_gone(reference) for reference in gone) and len(gone) == 6


def test_a_dropped_request_of_streams_goes_on():
    def function(comm):
        tulle.iallreduce(tulle.Stream([1], [1.0], 10), comm=comm)
        gc.collect()
        return tulle.allreduce(tulle.Stream([2], [1.0], 10), comm=comm).values[0]

    assert tulle.threads(3, function) == [3.0] * 3


def test_a_dropped_request_in_place_breaks_the_communicator_and_leaves_the_array_alone():
    def function(comm):
        array = np.ones(100)
        if comm.rank == 0:
            request = tulle.iallreduce(array, comm=comm)
            del request
            gc.collect()
        kinds = []
        for _ in range(2):
            try:
                tulle.allreduce(np.ones(100), comm=comm)
            except tulle.Error as error:
                kinds.append(error.kind)
        return array.sum(), kinds[-1]

    for total, kind in tulle.threads(2, function):
        assert total == 100.0
        assert kind in ("broken", "peer_failed")  # the latter where the other rank has ended meanwhile


def test_a_progress_thread_finishes_what_nobody_waits_for():
    def function(comm):
        comm.start_progress_thread()
        values = np.ones(1000, np.float32)
        request = tulle.iallreduce(tulle.Stream.dense(values), comm=comm)
        gone = weakref.ref(values)
        del values
        while not request.test():
            time.sleep(0.001)
        assert request.wait().to_dense().sum() == 2000
        del request
        return is_gone(gone)

    assert tulle.threads(2, function) == [True, True]


# ---------------------------------------------------------------- errors


def test_errors_are_classes_of_their_kinds():
    for name, kind, also in [
        ("BadInputError", "bad_input", ValueError),
        ("UnsupportedError", "unsupported", Exception),
        ("MismatchError", "mismatch", Exception),
        ("BadMessageError", "bad_message", Exception),
        ("DeadlineError", "deadline", TimeoutError),
        ("PeerFailedError", "peer_failed", Exception),
        ("BrokenError", "broken", Exception),
        ("SystemError", "system", Exception),
        ("ExcludedError", "excluded", Exception),
    ]:
        made = getattr(tulle, name)("words", 1, 2)
        assert isinstance(made, tulle.Error) and isinstance(made, also)
        assert (made.kind, made.rank, made.peer, str(made)) == (kind, 1, 2, "words")


def test_ranks_that_disagree_are_told():
    def function(comm):
        try:
            tulle.allreduce(tulle.Stream([1], [1.0], 10 + comm.rank), comm=comm)
        except tulle.Error as error:
            return error

    errors = tulle.threads(2, function)
    assert {type(error) for error in errors} <= {tulle.MismatchError, tulle.PeerFailedError}
    mismatch = next(error for error in errors if isinstance(error, tulle.MismatchError))
    assert mismatch.rank in (0, 1) and "dimension" in str(mismatch)


def test_a_deadline_names_who_is_late():
    def function(comm):
        if comm.rank == 1:
            time.sleep(0.5)
            return None
        with pytest.raises(tulle.DeadlineError, match="rank 1") as caught:
            tulle.allreduce(np.ones(3), comm=comm, deadline=0.1)
        return caught.value.rank

    assert tulle.threads(2, function)[0] == 0


def test_bad_options_are_refused_and_do_no_harm():
    def function(comm):
        for options, kind, words in [
            (dict(algorithm="ssar"), ValueError, "there are auto"),
            (dict(op="plus"), ValueError, "plus"),
            (dict(value_coding="qsgd:bits=3"), ValueError, "bits"),
            (dict(residual="all"), ValueError, "there are global, partial, local"),
            (dict(densty=0.1), TypeError, "densty"),
            (dict(density="much"), TypeError, "option 'density' is 'much': give a number"),
            (dict(deadline=None), TypeError, "option 'deadline' is None: give seconds, or leave it out"),
            (dict(deadline=float("nan")), TypeError, "option 'deadline' is nan: give seconds"),
            (dict(op=3), TypeError, "option 'op' is 3: give a name, such as 'max'"),
            (dict(k=-1), TypeError, "option 'k' is -1: give a whole number, 0 or more"),
            (dict(checksum=[]), TypeError, "True or False"),
        ]:
            with pytest.raises(kind, match=words):
                tulle.allreduce(np.ones(3), comm=comm, **options)
        read_only = np.ones(3)
        read_only.flags.writeable = False
        with pytest.raises(ValueError, match=r"call array.copy\(\)"):
            tulle.allreduce(read_only, comm=comm)
        with pytest.raises(ValueError, match="k or density"):
            tulle.allreduce_top_k(np.ones(3), comm=comm)
        with pytest.raises(TypeError, match="mpi4py"):
            tulle.allreduce(np.ones(3), comm=3)
        for seconds in (None, "soon", -1, float("nan")):
            with pytest.raises((TypeError, ValueError), match="deadline is"):
                comm.set_default_deadline(seconds)
        return tulle.allreduce(np.ones(3), comm=comm)[0]

    assert tulle.threads(2, function) == [2.0, 2.0]


def test_a_rank_that_raises_ends_the_others():
    begin = time.monotonic()

    def function(comm):
        if comm.rank == 2:
            raise KeyError("the data of rank 2")
        tulle.allreduce(np.ones(3), comm=comm)

    with pytest.raises(KeyError, match="the data of rank 2"):
        tulle.threads(3, function)
    assert time.monotonic() - begin < 100  # not the deadline of 300 s


def test_ctrl_c_ends_threads_that_wait():
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        tulle.threads(2, lambda comm: comm.barrier() if comm.rank == 0 else threading.Event().wait(1))


def test_a_closed_communicator_says_so():
    comm = tulle.connect("127.0.0.1:0", rank=0, size=1)
    comm.close()
    with pytest.raises(tulle.BadInputError, match="closed"):
        comm.barrier()
