"""Selectors, codings, costs and simulation: as the library has them."""
import doctest
import importlib
import importlib.util
import pkgutil
import subprocess
import sys

import numpy as np
import pytest

import tulle


def modules():
    return [f"tulle.{each.name}" for each in pkgutil.iter_modules(tulle.__path__) if each.name not in ("_core", "torch")]


@pytest.mark.parametrize("name", ["tulle", *modules()])
def test_examples_of_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0 and (result.attempted > 0 or name == "tulle._arrays")


def test_every_function_has_an_example():
    for name in tulle.__all__:
        member = getattr(tulle, name)
        if callable(member) and not isinstance(member, type):
            assert ">>>" in member.__doc__, name


@pytest.mark.parametrize("kind", [tulle.Communicator, tulle.Synchronizer], ids=lambda kind: kind.__name__)
def test_every_method_has_an_example(kind):
    methods = {name: each for name, each in vars(kind).items() if callable(each) and not name.startswith("_")}
    assert [name for name, each in methods.items() if ">>>" not in each.__doc__] == []


def test_torch_is_found_without_an_import_of_its_own():
    source = "import sys, tulle; assert 'torch' not in sys.modules; tulle.torch.register; print('found')"
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not there")
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=150)
    assert done.stdout == "found\n", done.stderr
    with pytest.raises(AttributeError, match="no attribute 'tensorflow'"):
        tulle.tensorflow  # noqa: B018


def test_the_version_is_a_version():
    assert tulle.__version__.count(".") == 2


@pytest.mark.parametrize("row", tulle.selectors(), ids=lambda row: row["name"])
def test_every_selector_leaves_the_rest(row):
    values = np.random.default_rng(2).standard_normal(4096).astype(np.float32)
    options = dict(threshold=1.0) if row["needs"] == "threshold" else dict(density=0.02)
    if row["name"] == "bucketed_top_k":
        options = dict(k=8, bucket=512)
    residual = values.copy()
    selection = tulle.select_in_place(residual, row["name"], **options)
    assert 0 < selection.stream.nnz < 4096
    assert np.array_equal(residual + selection.stream.to_dense(), values)
    assert tulle.select(values, row["name"], **options).stream == selection.stream


def test_selectors_refuse_what_makes_no_sense():
    with pytest.raises(tulle.BadInputError, match="exact_top_k"):
        tulle.select(np.ones(3), "top", k=1)
    with pytest.raises(tulle.BadInputError):
        tulle.select(np.array([1.0, np.nan]), k=1)
    assert tulle.select(np.array([1.0, np.nan]), k=1, non_finite="skip").stream.indices.tolist() == [0]
    with pytest.raises(tulle.BadInputError, match="same size"):
        tulle.accumulate_and_select(np.ones(3), np.ones(4), k=1)


@pytest.mark.parametrize("row", [row for row in tulle.codecs() if row["codes"] == "values"], ids=lambda r: r["name"])
def test_every_value_coding_goes_both_ways(row):
    values = np.abs(np.random.default_rng(4).standard_normal(1000)).astype(np.float32)
    coded = tulle.encode(values, row["name"], seed=3)
    decoded = tulle.decode(coded)
    assert decoded.shape == values.shape and decoded.dtype == values.dtype
    assert tulle.encode(values, row["name"], seed=3) == coded
    if row["fidelity"] == "exact":
        assert np.array_equal(decoded, values)
    else:
        assert len(coded.data) < values.nbytes or row["name"] == "f32"


@pytest.mark.parametrize("row", [row for row in tulle.codecs() if row["codes"] == "indices"], ids=lambda r: r["name"])
def test_every_index_coding_is_exact(row):
    dense = np.random.default_rng(4).random(5000) < 0.05
    stream = tulle.Stream.from_dense(dense.astype(np.float32))
    coded = tulle.encode_indices(stream, row["name"])
    assert np.array_equal(tulle.decode_indices(coded), np.flatnonzero(dense))
    assert len(tulle.encode_indices(stream).data) <= len(coded.data)


def test_decoders_trust_nothing():
    coded = tulle.encode(np.ones(100, np.float32), "qsgd:bits=4")
    with pytest.raises(tulle.BadMessageError):
        tulle.decode(tulle.Coded(coded.data[:-1], coded.codec, coded.type, coded.count))
    with pytest.raises(tulle.BadMessageError):
        tulle.decode_indices(tulle.CodedIndices(b"\xff", "bitmap", 8, 3))


def test_costs_say_what_the_library_would_choose():
    costs = tulle.explain(ranks=8, dimension=2**20, density=0.01, network="gige")
    assert costs["rows"] == sorted(costs["rows"], key=lambda row: row["seconds"])
    [cell] = tulle.plan([8], [0.01], dimension=2**20, network="gige")
    assert cell["winner"] == costs["rows"][0]
    assert cell["speed_up"] == pytest.approx(costs["best_dense"]["seconds"] / cell["winner"]["seconds"])
    with pytest.raises(tulle.BadInputError, match="gige"):
        tulle.explain(network="gigee")


def test_simulations_are_checked_and_repeat():
    call = dict(ranks=5, dimension=4096, density=0.05, network="gige")
    rows = tulle.simulate(["auto", "ssar_split_allgather"], **call)
    assert [row["verified"] for row in rows] == [True, True] and rows == tulle.simulate(["auto", "ssar_split_allgather"], **call)
    [phantom] = tulle.simulate("auto", ranks=256, dimension=2**24, density=0.001, data="phantom")
    assert phantom["is_phantom"] and not phantom["verified"]
    for wrong in (dict(ranks=0), dict(density=2.0), dict(calls=0), dict(dimension=0)):
        with pytest.raises(tulle.BadInputError):
            tulle.simulate(**wrong)


@pytest.mark.parametrize(
    ("call", "guess"),
    [
        (lambda: tulle.recipe_fields("tokp:1%"), "topk"),
        (lambda: tulle.recipe_fields("redsink"), "redsync"),
        (lambda: tulle.recipe_fields("topk|densty:1%"), "density"),
        (lambda: tulle.recipe_fields("topk|values:qsdg"), "qsgd"),
        (lambda: tulle.recipe_fields({"selector": "exact_topk"}), "exact_top_k"),
        (lambda: tulle.select(np.ones(4), "exact_tok_k", k=1), "exact_top_k"),
        (lambda: tulle.select(np.ones(4), densty=0.1), "density"),
        (lambda: tulle.encode(np.ones(4, np.float32), "int9"), "int8"),
        (lambda: tulle.threads(1, lambda comm: tulle.allreduce(np.ones(4), comm=comm, algorithm="dense_rign")), "dense_ring"),
        (lambda: tulle.threads(1, lambda comm: tulle.Synchronizer({"w": 4}, comm=comm, sead=1)), "seed"),
        (lambda: tulle.simulate(network="gigee", ranks=2, dimension=10, density=0.1), "gige"),
    ],
)
def test_misspelt_names_are_guessed(call, guess):
    with pytest.raises((tulle.Error, TypeError, ValueError)) as caught:
        call()
    assert f"did you mean '{guess}'?" in str(caught.value), caught.value
