"""Streams: what they are made of, what they share, what they refuse."""
import gc
import weakref

import numpy as np
import pytest
import scipy.sparse

import tulle

TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i32": np.int32, "i64": np.int64}


@pytest.mark.parametrize("name", TYPES)
def test_a_stream_holds_what_it_was_made_of(name):
    values = np.array([3, -1, 7], TYPES[name])
    stream = tulle.Stream(np.array([1, 4, 9]), values, dimension=12)
    assert (stream.type, stream.dimension, stream.nnz, len(stream)) == (name, 12, 3, 12)
    assert stream.indices.tolist() == [1, 4, 9] and stream.indices.dtype == np.uint32
    assert stream.values.tolist() == [3, -1, 7] and stream.values.dtype == TYPES[name]
    dense = np.zeros(12, TYPES[name])
    dense[[1, 4, 9]] = values
    assert np.array_equal(stream.to_dense(), dense)
    assert tulle.Stream.from_dense(dense) == stream
    assert tulle.Stream.dense(dense).to_sparse() == stream


def test_sorted_arrays_of_the_right_width_are_shared_and_others_are_copied():
    values = np.array([1.0, 2.0, 3.0], np.float32)
    for indices in (np.array([1, 4, 9], np.uint32), np.array([1, 4, 9], np.int32)):
        stream = tulle.Stream(indices, values, dimension=12)
        assert np.shares_memory(stream.indices, indices) and np.shares_memory(stream.values, values)
    unsorted = tulle.Stream(np.array([9, 4, 1], np.uint32), values, dimension=12)
    assert unsorted.values.tolist() == [3.0, 2.0, 1.0] and not np.shares_memory(unsorted.values, values)
    assert np.shares_memory(tulle.Stream.dense(values).values, values)


def test_shared_arrays_live_as_long_as_the_stream_or_a_view_of_it():
    values = np.array([1.0, 2.0], np.float32)
    gone = weakref.ref(values)
    stream = tulle.Stream(np.array([1, 4], np.uint32), values, dimension=12)
    del values
    view = stream.values
    del stream
    gc.collect()
    assert gone() is not None and view.tolist() == [1.0, 2.0]
    del view
    gc.collect()
    assert gone() is None


def test_views_are_read_only():
    stream = tulle.Stream([1], [2.0], dimension=3)
    for view in (stream.indices, stream.values):
        with pytest.raises(ValueError):
            view[0] = 0


def test_equal_indices_are_combined_by_the_op():
    assert tulle.Stream([3, 3, 1], [2, 5, 1], dimension=4).values.tolist() == [1, 7]
    assert tulle.Stream([3, 3, 1], [2, 5, 1], dimension=4, op="max").values.tolist() == [1, 5]


def test_large_dimensions_have_wide_indices():
    stream = tulle.Stream([5, 2**40], [1.0, 2.0], dimension=2**41)
    assert stream.indices.dtype == np.uint64 and stream.indices.tolist() == [5, 2**40]


def test_bf16_travels_as_its_bits():
    bits = np.array([0x3F80, 0, 0x4000], np.uint16)  # 1.0, 0.0, 2.0
    stream = tulle.Stream.from_dense(bits, type="bf16")
    assert (stream.type, stream.values.tolist()) == ("bf16", [0x3F80, 0x4000])


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_scipy_matrices_go_both_ways(form):
    matrix = scipy.sparse.random(7, 11, 0.3, format=form, random_state=1)
    stream = tulle.Stream.from_scipy(matrix)
    assert np.array_equal(stream.to_dense().reshape(7, 11), matrix.toarray())
    assert np.array_equal(stream.to_scipy((7, 11)).toarray(), matrix.toarray())


def test_one_row_of_csr_is_shared():
    row = scipy.sparse.csr_matrix(np.array([[0, 1.5, 0, 2.5]]))
    stream = tulle.Stream.from_scipy(row)
    assert np.shares_memory(stream.values, row.data) and np.shares_memory(stream.indices, row.indices)


@pytest.mark.parametrize("indices", [[1, 12], [-1, 3], np.array([1, 12], np.uint32), np.array([-1, 3], np.int32)])
def test_indices_outside_are_refused(indices):
    with pytest.raises(ValueError, match=r"outside \[0, 12\)"):
        tulle.Stream(indices, [1.0, 2.0], dimension=12)


def test_the_refusal_of_an_array_says_what_to_call():
    with pytest.raises(TypeError, match=r"complex128.*array\.astype\(numpy\.float32\)"):
        tulle.Stream.from_dense(np.zeros(3, complex))
    with pytest.raises(TypeError, match=r"array\.astype\(numpy\.int64\)"):
        tulle.Stream.from_dense(np.zeros(3, np.uint8))
    with pytest.raises(ValueError, match="numpy.ascontiguousarray"):
        tulle.Stream.from_dense(np.zeros((4, 4))[:, 1])
    with pytest.raises(TypeError, match="numpy.asarray"):
        tulle.Stream.from_dense([1.0, 2.0])
    with pytest.raises(TypeError, match="from_scipy"):
        tulle.allreduce(scipy.sparse.eye(3), comm=_Nobody())
    with pytest.raises(ValueError, match="newbyteorder"):
        tulle.Stream.from_dense(np.zeros(3, ">f8"))
    read_only = np.zeros(3)
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match=r"out\.copy\(\)"):
        tulle.Stream([1], [1.0], dimension=3).to_dense(read_only)
    with pytest.raises(TypeError, match="from_dense"):
        tulle.Stream.from_scipy(np.eye(3))
    for dimension, kind in ((3.0, TypeError), (None, TypeError), (-1, ValueError), (2**64, ValueError)):
        with pytest.raises(kind, match=f"dimension is {dimension}"):
            tulle.Stream([0], [1.0], dimension)
    with pytest.raises(TypeError, match="indices are of float64"):
        tulle.Stream([0.5], [1.0], dimension=3)
    with pytest.raises(tulle.BadInputError, match="as many"):
        tulle.Stream([1, 2], [1.0], dimension=3)


class _Nobody(tulle.Communicator):
    """A communicator that is never called: the refusal comes before."""

    def __init__(self):
        super().__init__(None)


def test_streams_of_nothing():
    stream = tulle.Stream([], np.empty(0, np.float32), dimension=0)
    assert stream.nnz == 0 and stream.indices.size == 0 and stream.to_dense().size == 0
    assert tulle.Stream.empty(5, type="i64").to_dense().tolist() == [0] * 5
