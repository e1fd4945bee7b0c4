"""The gradient pipeline: recipes, and the synchronizer that passes gradients through them."""
from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Union

import numpy as np

from . import _core
from ._arrays import checked, numpy_view, require_array, require_contiguous, require_writable
from ._communicator import Communicator, communicator_of, finish
from ._stream import Stream

if TYPE_CHECKING:
    from typing_extensions import Unpack

Recipe = Union[str, Mapping[str, Any]]


def recipes() -> list[dict[str, Any]]:
    """The recipes that have names: docs/recipes.md as dicts.

    >>> import tulle
    >>> [row["name"] for row in tulle.recipes()][:3]
    ['dense', 'noop', 'fp16']
    """
    return _core.recipes()


def recipe_fields(recipe: Recipe) -> dict[str, Any]:
    """Every field of a recipe, given as text or as a dict of those that differ from ``dense``.

    >>> import tulle
    >>> tulle.recipe_fields("topk:1%")["density"], tulle.recipe_fields({"preset": "redsync"})["momentum"]
    (0.01, 0.9)
    """
    return json.loads(_core.recipe_json(_text_of(recipe)))


def recipe_text(recipe: Recipe) -> str:
    """The shortest text that gives the same recipe.

    >>> import tulle
    >>> tulle.recipe_text({"preset": "topk", "density": 0.05})
    'topk|density:0.05'
    """
    return _core.recipe_text(_text_of(recipe))


def _text_of(recipe: Recipe) -> str:
    if isinstance(recipe, str):
        return recipe
    if isinstance(recipe, Mapping):
        return json.dumps(dict(recipe))
    raise TypeError(f"recipe is {recipe!r}: give its text, as 'topk:1%', or a dict of the fields that differ from dense")


class SynchronizerOptions(TypedDict, total=False):
    """What a synchronizer may be given. Equal on all ranks."""

    non_finite: str  #: error, or skip: all ranks drop what a step would deliver for a parameter that has NaN or infinity
    seed: int  #: of everything random
    fuse_below: int  #: parameters that travel whole and are smaller travel together; 0: each by itself
    fuse_values: int  #: of a group of them
    threads: int  #: of selecting; 0: all that there are
    boundaries: str  #: of small, middle and large parameters: recipe or measured
    reproducible: bool  #: rows are chosen by options alone, never by what calls took
    replica_check_every: int  #: so many steps a checksum of updates is compared; 0: never
    weights_check_every: int  #: so many steps compare_weights() is due, from the first on; 0: never
    residual_norms: bool  #: stats have the norm of what stayed
    deadline: float  #: seconds of an exchange; the communicator's default where not given
    first_channel: int  #: of the communicator: those up to end_channel are taken; a second one begins there
    undo: bool  #: keeps what was there before each of the last two steps, for run_elastic()


class Update(NamedTuple):
    """What a step gives a parameter: the same on all ranks."""

    stream: Stream
    is_skipped: bool  #: a rank's gradient was not finite: the stream is empty


class _Parameter(NamedTuple):
    name: str
    size: int
    role: str
    rows: int


def _registered(parameters: Any) -> list[_Parameter]:
    """From {name: size}, {name: array} or rows of (name, size, role, rows) of which the last two may be missing."""
    rows = parameters.items() if isinstance(parameters, Mapping) else parameters
    made = []
    for name, size, *rest in rows:
        role, matrix_rows = (*rest, *("hidden", 0)[len(rest) :])
        if isinstance(size, np.ndarray):
            matrix_rows = matrix_rows or (size.shape[0] if size.ndim > 1 and size.size else 0)
            size = size.size
        made.append(_Parameter(str(name), int(size), str(role), int(matrix_rows)))
    return made


class Synchronizer:
    """Takes the gradients of named parameters and gives back the update that all ranks apply.

    A step is :meth:`start` for every parameter, in any order and on every rank in another one, :meth:`end_step`, and
    :meth:`finish` or :meth:`finish_into` for each. What a recipe does not deliver stays here and is part of a later
    step. ``parameters`` are a dict of names to sizes or arrays, or rows of (name, size, role, rows), where role is
    hidden, output, small or bias_or_norm and rows those of a matrix. All ranks must make it, with equal arguments;
    synchronizers that live at the same time want a communicator, or a range of channels, each. docs/gradient.md
    explains the stages, docs/recipes.md the recipes.

    >>> import numpy as np, tulle
    >>> def function(comm):
    ...     synchronizer = tulle.Synchronizer({"w": 4}, "topk:50%,dense_below=0", comm=comm)
    ...     gradient = np.array([0.5, 4, 0.25, 2], np.float32) * (comm.rank + 1)
    ...     synchronizer.step({"w": gradient})
    ...     return gradient, synchronizer.residual("w")
    >>> tulle.threads(2, function)[0]
    (array([0., 6., 0., 3.], dtype=float32), array([0.5 , 0.  , 0.25, 0.  ], dtype=float32))
    """

    def __init__(
        self, parameters: Any, recipe: Recipe = "dense", *, comm: Any = None, **options: Unpack[SynchronizerOptions]
    ) -> None:
        self._comm: Communicator = communicator_of(comm)
        self._parameters = _registered(parameters)
        self._ids = {each.name: number for number, each in enumerate(self._parameters)}
        rows = [tuple(each) for each in self._parameters]
        make = lambda: _core.Synchronizer(self._comm._group, rows, _text_of(recipe), options)  # noqa: E731
        deadline = options.get("deadline")
        with self._comm._within(deadline if isinstance(deadline, (int, float)) and deadline > 0 else None):
            self._core: _core.Synchronizer = finish(self._comm, make)

    @property
    def names(self) -> list[str]:
        """The parameters, in the order of registration."""
        return [each.name for each in self._parameters]

    @property
    def recipe(self) -> str:
        """The recipe as text."""
        return self._core.recipe()

    @property
    def end_channel(self) -> int:
        """The first channel of the communicator after its own: ``first_channel`` of another one beside it.

        >>> import tulle
        >>> def function(comm):
        ...     first = tulle.Synchronizer({"w": 4}, comm=comm)
        ...     second = tulle.Synchronizer({"w": 4}, comm=comm, first_channel=first.end_channel)
        ...     return first.end_channel, second.end_channel
        >>> tulle.threads(1, function)[0]
        (5, 9)
        """
        return self._core.end_channel()

    @property
    def steps(self) -> int:
        """How many steps have ended."""
        return self._core.steps()

    def _id(self, name: str) -> int:
        found = self._ids.get(name)
        if found is None:
            raise KeyError(f"no parameter is called '{name}'; there are {', '.join(self._ids)}")
        return found

    # ------------------------------------------------------------ a step

    def start(
        self, name: str, gradient: np.ndarray, weights: np.ndarray | None = None, *, type: str | None = None
    ) -> None:
        """Takes a gradient, of float32 or float16, or of uint16 with ``type="bf16"``, and starts its exchange. The
        array may be overwritten when this returns. ``weights`` are for recipes with weight_decay.

        >>> import numpy as np, tulle
        >>> def function(comm):
        ...     synchronizer = tulle.Synchronizer({"w": 2}, comm=comm)
        ...     synchronizer.start("w", np.array([1, 2], np.float16))
        ...     synchronizer.end_step()
        ...     return synchronizer.finish("w").stream.to_dense()
        >>> tulle.threads(2, function)[0]
        array([1., 2.], dtype=float32)
        """
        array, type_name = checked(gradient, type, "gradient")
        if weights is not None:
            weights, _ = checked(weights, "f32", "weights")
        self._core.start(type_name, [(self._id(name), array, weights)], "until_start_returns")

    def skip(self, name: str) -> None:
        """This rank has no gradient for the parameter in this step. It must still finish it.

        >>> import numpy as np, tulle
        >>> def function(comm):
        ...     synchronizer = tulle.Synchronizer({"w": 2}, comm=comm)
        ...     if comm.rank == 0:
        ...         synchronizer.start("w", np.array([1, 2], np.float32))
        ...     else:
        ...         synchronizer.skip("w")
        ...     synchronizer.end_step()
        ...     return synchronizer.finish("w").stream.to_dense()
        >>> tulle.threads(2, function)[1]
        array([0.5, 1. ], dtype=float32)
        """
        self._core.skip(self._id(name))

    def end_step(self) -> None:
        """Skips what was not started. From here on every parameter can be finished.

        >>> import tulle
        >>> def function(comm):
        ...     synchronizer = tulle.Synchronizer({"w": 2}, comm=comm)
        ...     synchronizer.end_step()
        ...     return float(synchronizer.finish("w").stream.to_dense().sum()), synchronizer.steps
        >>> tulle.threads(1, function)
        [(0.0, 1)]
        """
        self._core.end_step()

    def test(self, name: str) -> bool:
        """Makes some progress. True when finishing the parameter would not wait.

        >>> import numpy as np, tulle
        >>> def function(comm):
        ...     synchronizer = tulle.Synchronizer({"w": 2}, comm=comm)
        ...     synchronizer.start("w", np.ones(2, np.float32))
        ...     synchronizer.end_step()
        ...     while not synchronizer.test("w"):
        ...         pass  # compute something else
        ...     return synchronizer.finish("w").stream.nnz
        >>> tulle.threads(2, function)
        [2, 2]
        """
        return self._core.test(self._id(name))

    def finish(self, name: str) -> Update:
        """Waits for the update of the parameter, sparse or dense as it is.

        >>> import numpy as np, tulle
        >>> def function(comm):
        ...     synchronizer = tulle.Synchronizer({"w": 4}, "topk:25%,dense_below=0", comm=comm)
        ...     synchronizer.start("w", np.array([1, 5, 2, 3], np.float32))
        ...     synchronizer.end_step()
        ...     return synchronizer.finish("w").stream.to_dense()
        >>> tulle.threads(2, function)[0]
        array([0., 5., 0., 0.], dtype=float32)
        """
        stream, is_skipped = self._core.finish(self._id(name))
        return Update(Stream._wrap(stream), is_skipped)

    def finish_into(self, name: str, update: np.ndarray) -> bool:
        """Waits for the update and writes it to all of a float32 array. Gives False where the step was skipped.

        >>> import numpy as np, tulle
        >>> def function(comm):
        ...     synchronizer = tulle.Synchronizer({"w": 2, "b": 1}, comm=comm)
        ...     gradient = np.full(2, comm.rank, np.float32)
        ...     synchronizer.start("w", gradient)
        ...     synchronizer.end_step()
        ...     return synchronizer.finish_into("w", gradient), gradient, synchronizer.finish("b").stream.nnz
        >>> tulle.threads(2, function)[0]
        (True, array([0.5, 0.5], dtype=float32), 1)
        """
        array, _ = checked(require_array(update, "update"), "f32", "update")
        require_writable(array, "update")
        return self._core.finish_into([(self._id(name), array)])[0]

    def step(self, gradients: Mapping[str, np.ndarray]) -> None:
        """A whole step: replaces each float32 gradient by its update. What is not there is skipped, and its update
        dropped.

        >>> import numpy as np, tulle
        >>> def function(comm):
        ...     synchronizer = tulle.Synchronizer({"w": 2, "b": 1}, comm=comm)
        ...     gradient = np.full(2, comm.rank, np.float32)
        ...     synchronizer.step({"w": gradient})
        ...     return gradient
        >>> tulle.threads(2, function)[0]
        array([0.5, 0.5], dtype=float32)
        """
        if not isinstance(gradients, Mapping):
            raise TypeError(f"gradients are of {type(gradients).__name__}: pass a dict of names to arrays")
        for name, gradient in gradients.items():  # all of them, before the first is on its way
            size = self._parameters[self._id(name)].size
            require_writable(checked(gradient, "f32", name)[0], name)
            if gradient.size != size:
                raise ValueError(f"{name} has {gradient.size} values, and {size} are registered")
        self._core.start("f32", [(self._id(name), each, None) for name, each in gradients.items()], "until_finished")
        self._core.end_step()
        self._core.finish_into([(number, gradients.get(each.name)) for number, each in enumerate(self._parameters)])

    def wants_weights(self) -> bool:
        """True where this step is one of every ``weights_check_every``: give the weights to :meth:`compare_weights`.

        >>> import tulle
        >>> def function(comm):
        ...     return tulle.Synchronizer({"w": 2}, comm=comm, weights_check_every=100).wants_weights()
        >>> tulle.threads(1, function)
        [True]
        """
        return self._core.wants_weights()

    def compare_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Starts to compare a checksum of each parameter's weights with the other ranks'. All ranks must call it in the same
        step, when the updates of the step before are in the weights. Where they differ, finishing the step raises
        MismatchError on all ranks, which names a parameter and the ranks.

        >>> import numpy as np, tulle
        >>> def function(comm):
        ...     synchronizer = tulle.Synchronizer({"w": 2}, comm=comm)
        ...     synchronizer.compare_weights({"w": np.array([1.0, comm.rank], np.float32)})
        ...     try:
        ...         synchronizer.step({"w": np.ones(2, np.float32)})
        ...     except tulle.MismatchError as error:
        ...         return "replicas differ" in str(error)
        >>> tulle.threads(2, function)
        [True, True]
        """
        if weights.keys() != self._ids.keys():
            raise ValueError(f"weights are of {', '.join(weights)}, and the parameters are {', '.join(self._ids)}")
        self._core.compare_weights([checked(weights[name], name=name)[0] for name in self.names])

    def count_local_step(self) -> bool:
        """Counts a local step. True where an exchange is due: after every ``every`` of the recipe. Start then with
        the weights before minus the weights now, and set the weights to those before minus the update.

        >>> import tulle
        >>> def function(comm):
        ...     synchronizer = tulle.Synchronizer({"w": 4}, "local2", comm=comm)
        ...     return [synchronizer.count_local_step() for _ in range(4)]
        >>> tulle.threads(1, function)
        [[False, True, False, True]]
        """
        return self._core.count_local_step()

    # ------------------------------------------------------------ what it keeps

    def residual(self, name: str) -> np.ndarray:
        """A copy of what waits for later steps. Empty where the recipe keeps nothing.

        >>> import numpy as np, tulle
        >>> def function(comm):
        ...     synchronizer = tulle.Synchronizer({"w": 4}, "topk:25%,dense_below=0", comm=comm)
        ...     synchronizer.step({"w": np.array([1, 5, 2, 3], np.float32)})
        ...     return synchronizer.residual("w")
        >>> tulle.threads(1, function)[0]
        array([1., 0., 2., 3.], dtype=float32)
        """
        return numpy_view(self._core.residual(self._id(name)), np.float32)

    def momentum(self, name: str) -> np.ndarray:
        """A copy of the momentum that the recipe keeps; empty where it keeps none.

        >>> import numpy as np, tulle
        >>> def function(comm):
        ...     synchronizer = tulle.Synchronizer({"w": 2}, "dense|momentum:0.5", comm=comm)
        ...     for _ in range(2):
        ...         synchronizer.step({"w": np.array([1, 2], np.float32)})
        ...     return synchronizer.momentum("w")
        >>> tulle.threads(1, function)[0]
        array([1.5, 3. ], dtype=float32)
        """
        return numpy_view(self._core.momentum(self._id(name)), np.float32)

    def outer_momentum(self, name: str) -> np.ndarray:
        """The same of the outer step.

        >>> import tulle
        >>> tulle.threads(1, lambda comm: tulle.Synchronizer({"w": 2}, "diloco:1", comm=comm).outer_momentum("w"))
        [array([0., 0.], dtype=float32)]
        """
        return numpy_view(self._core.outer_momentum(self._id(name)), np.float32)

    def save_state(self) -> np.ndarray:
        """What this rank keeps between steps, as bytes. Not while a parameter is in flight.

        >>> import numpy as np, tulle
        >>> def function(comm):
        ...     first, second = (
        ...         tulle.Synchronizer({"w": 4}, "topk:25%,dense_below=0", comm=comm, first_channel=channel)
        ...         for channel in (1, 100)
        ...     )
        ...     first.step({"w": np.array([1, 2, 3, 4], np.float32)})
        ...     second.load_state([first.save_state()])
        ...     return second.residual("w")
        >>> tulle.threads(1, function)[0]
        array([1., 2., 3., 0.], dtype=float32)
        """
        return numpy_view(self._core.save_state(), np.uint8)

    def load_state(self, states: Sequence[Any]) -> None:
        """Goes on from what was saved: this rank's own state, or those of all ranks, also of another number of them.

        >>> import numpy as np, tulle
        >>> def trained(comm):
        ...     synchronizer = tulle.Synchronizer({"w": 2}, "topk:50%,dense_below=0", comm=comm)
        ...     synchronizer.step({"w": np.array([1, 2], np.float32)})
        ...     return synchronizer.save_state()
        >>> states = tulle.threads(2, trained)
        >>> def resumed(comm):
        ...     synchronizer = tulle.Synchronizer({"w": 2}, "topk:50%,dense_below=0", comm=comm)
        ...     synchronizer.load_state(states)
        ...     return synchronizer.residual("w")
        >>> tulle.threads(1, resumed)  # of a mean over 1 rank, which was over 2
        [array([1., 0.], dtype=float32)]
        """
        self._core.load_state(list(states))

    def save_checkpoint(self, path: str | os.PathLike[str], files: str = "one_per_rank") -> None:
        """Writes all ranks' states to PATH.RANK-of-RANKS, or ``one_for_all`` to PATH. All ranks must call it.

        >>> import os, tempfile, tulle
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     path = f"{directory}/state"
        ...     save = lambda comm: tulle.Synchronizer({"w": 2}, "topk", comm=comm).save_checkpoint(path)
        ...     tulle.threads(2, save), sorted(os.listdir(directory))
        ([None, None], ['state.0-of-2', 'state.1-of-2'])
        """
        finish(self._comm, lambda: self._core.save_checkpoint(os.fspath(path), files))

    def load_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Goes on from either kind of files, of any number of ranks. All ranks must call it.

        It takes the newest step of which every rank has an intact file, and warns where a newer one is left out.

        >>> import tempfile, tulle
        >>> def function(comm, path):
        ...     synchronizer = tulle.Synchronizer({"w": 2}, "topk", comm=comm)
        ...     synchronizer.save_checkpoint(path, "one_for_all")
        ...     synchronizer.load_checkpoint(path)
        ...     return synchronizer.steps
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     tulle.threads(2, function, f"{directory}/state")
        [0, 0]
        """
        left_out = finish(self._comm, lambda: self._core.load_checkpoint(os.fspath(path)))
        if left_out:
            warnings.warn(f"goes on from an older checkpoint, of step {self.steps}: {left_out}", stacklevel=2)

    # ------------------------------------------------------------ what it tells

    def plan(self) -> list[dict[str, Any]]:
        """How each parameter travels once warm-up is over, why, and the bytes that are kept for it.

        >>> import tulle
        >>> plan = tulle.threads(1, lambda comm: tulle.Synchronizer({"w": 20_000, "b": 10}, "topk", comm=comm).plan())[0]
        >>> [(row["parameter"], row["how"], row["state_bytes"]) for row in plan]
        [('w', 'exact_top_k', 80000), ('b', 'dense', 40)]
        """
        return self._core.plan()

    def plan_text(self) -> str:
        """The same as a table to print.

        >>> import tulle
        >>> text = tulle.threads(1, lambda comm: tulle.Synchronizer({"w": 20_000}, "topk", comm=comm).plan_text())[0]
        >>> "exact_top_k" in text
        True
        """
        return self._core.plan_text()

    def stats(self, name: str) -> dict[str, Any]:
        """What the last step of a parameter did on this rank.

        >>> import numpy as np, tulle
        >>> def function(comm):
        ...     synchronizer = tulle.Synchronizer({"w": 4}, "topk:50%,dense_below=0", comm=comm)
        ...     synchronizer.step({"w": np.array([1, 5, 2, 3], np.float32)})
        ...     return synchronizer.stats("w")["taken"]
        >>> tulle.threads(2, function)
        [2, 2]
        """
        return self._core.stats(self._id(name))

    def report(self) -> str:
        """What all steps so far cost, on one screen, the same on all ranks. All ranks must call it.

        >>> import tulle
        >>> print(tulle.threads(2, lambda comm: tulle.Synchronizer({"w": 4}, comm=comm).report())[0].splitlines()[0])
        recipe           dense
        """
        return finish(self._comm, self._core.report)

    def __repr__(self) -> str:
        values = sum(each.size for each in self._parameters)
        return f"Synchronizer({self.recipe}, {len(self._parameters)} parameters of {values} values)"


class ElasticOptions(TypedDict, total=False):
    """What run_elastic() may be given. Equal on all ranks."""

    least_ranks: int  #: where fewer are left, all raise PeerFailedError
    most_tries: int  #: of a step that fails while nobody is lost
    deadline: float  #: seconds of an agreement; the communicator's default where not given
    patience: float  #: seconds after which a silent rank is left out; must be longer than ranks are apart
    quorum: str  #: majority, or any: whoever is left, which two ranks need; docs/faults.md says what it risks


def run_elastic(
    synchronizer: Synchronizer,
    step: Callable[[int], Any],
    steps: int,
    *,
    arrays: Sequence[np.ndarray] = (),
    on_change: Callable[[dict[str, Any]], Any] | None = None,
    **options: Unpack[ElasticOptions],
) -> dict[str, Any]:
    """Calls ``step(number)`` until so many steps are completed on all ranks that are left.

    ``step`` is one step of the synchronizer, which was made with ``undo=True``, and changes ``arrays``, such as weights,
    in place. Where it raises PeerFailedError, DeadlineError or BrokenError, the survivors agree and shrink the
    synchronizer's communicator, which then means them alone; arrays and synchronizer become what they were before the
    first step that not all of them have, and that is called again. ``on_change`` is told a dict of ``step``,
    ``is_undone``, ``survivors`` (ranks that they had) and ``lost`` (pairs of rank and last known norm of its residual).
    Gives a dict of ``steps``, ``undone``, ``shrinks`` and ``lost``. docs/faults.md has the promises.

    >>> import numpy as np, tulle
    >>> def function(comm):
    ...     weights = np.zeros(2, np.float32)
    ...     synchronizer = tulle.Synchronizer({"w": 2}, comm=comm, undo=True)
    ...     def step(number):
    ...         gradient = np.full(2, comm.rank + number, np.float32)
    ...         synchronizer.step({"w": gradient})
    ...         weights[:] -= gradient
    ...     return tulle.run_elastic(synchronizer, step, 3, arrays=[weights])["steps"], weights
    >>> tulle.threads(2, function)[0]
    (3, array([-4.5, -4.5], dtype=float32))
    """
    for number, array in enumerate(arrays):
        require_contiguous(require_array(array, f"arrays[{number}]"), f"arrays[{number}]")
        require_writable(array, f"arrays[{number}]")
    group = synchronizer._comm._group
    return _core.run_elastic(group, synchronizer._core, int(steps), list(arrays), step, on_change, options)


def merged_recipe(recipe: Recipe, changes: Mapping[str, Any]) -> str:
    """A recipe with other fields, as text."""
    return recipe_text({**recipe_fields(recipe), **changes})
