"""The gradient pipeline on numpy arrays: ranks are threads, or processes where they end."""
import signal
import time
import weakref

import numpy as np
import pytest
from processes import Job, run_ranks

import tulle

SIZE = 20_000


def gradient_of(rank, step, size=SIZE):
    return np.random.default_rng([rank, step]).integers(-8, 9, size).astype(np.float32)


@pytest.mark.parametrize("recipe", ["topk:1%", "topk:16/512", "dgc:1%", "spardl:1%", "three_lc", "powersgd:2", "redsync"])
def test_every_step_gives_all_ranks_the_same_update(recipe):
    def function(comm):
        synchronizer = tulle.Synchronizer([("w", SIZE, "hidden", 100), ("b", 10, "bias_or_norm")], recipe, comm=comm)
        updates = []
        for step in range(3):
            gradients = {"w": gradient_of(comm.rank, step), "b": gradient_of(comm.rank, step, 10)}
            synchronizer.step(gradients)
            updates.append((gradients["w"], gradients["b"]))
        return updates

    first, second = tulle.threads(2, function)
    for (w, b), (other_w, other_b) in zip(first, second):
        assert w.any() and np.array_equal(w, other_w) and np.array_equal(b, other_b)


def test_nothing_is_lost():
    """Delivered, times the ranks for a mean, plus residuals is the sum of all gradients: exactly, on integers."""

    def function(comm):
        synchronizer = tulle.Synchronizer({"w": SIZE}, "topk:5%", comm=comm)
        delivered = np.zeros(SIZE)
        for step in range(4):
            if not (comm.rank == 1 and step == 2):  # one rank has no gradient there
                synchronizer.start("w", gradient_of(comm.rank, step))
            synchronizer.end_step()
            delivered += 2.0 * synchronizer.finish("w").stream.to_dense()
        return delivered, synchronizer.residual("w"), synchronizer.stats("w")

    (delivered, left, stats), (_, left_there, _) = tulle.threads(2, function)
    given = sum(gradient_of(rank, step) for rank in range(2) for step in range(4) if (rank, step) != (1, 2))
    assert np.array_equal(delivered + left + left_there, given)
    assert stats["step"] == 4 and 0 < stats["taken"] <= SIZE // 10 and stats["bytes_sent"] > 0


def test_a_lent_gradient_is_kept_until_it_is_finished():
    """By the core alone: an exchange reads it when its owner has forgotten it."""

    def function(comm):
        synchronizer = tulle.Synchronizer({"w": SIZE}, "dense", comm=comm)
        core = synchronizer._core
        gradient = gradient_of(comm.rank, 0)
        kept = weakref.ref(gradient)
        core.start("f32", [(0, gradient, None)], "until_finished")
        with pytest.raises(tulle.Error, match="in flight"):
            core.start("f32", [(0, gradient_of(comm.rank, 1), None)], "until_finished")
        del gradient
        others = [np.full(SIZE, np.nan, np.float32) for _ in range(8)]  # would get its memory if it were free
        core.end_step()
        assert kept() is not None
        update = synchronizer.finish("w").stream.to_dense()
        return update, kept() is None, len(others)

    for update, is_released, _ in tulle.threads(2, function):
        assert is_released and np.array_equal(update, (gradient_of(0, 0) + gradient_of(1, 0)) / 2)


def test_a_lent_gradient_outlives_a_synchronizer_that_goes_before_it_is_finished():
    def function(comm):
        synchronizer = tulle.Synchronizer({"w": SIZE}, "dense", comm=comm)
        gradient = gradient_of(comm.rank, 0)
        kept = weakref.ref(gradient)
        synchronizer._core.start("f32", [(0, gradient, None)], "until_finished")
        del gradient
        was_kept = kept() is not None
        del synchronizer
        return was_kept, kept() is None

    assert tulle.threads(1, function) == [(True, True)]


def test_half_precision_is_accumulated_in_single():
    def function(comm):
        synchronizer = tulle.Synchronizer({"h": 2, "b": 2}, comm=comm, fuse_below=0)
        synchronizer.start("h", np.array([1.5, -2], np.float16))
        synchronizer.start("b", (np.array([1.5, -2], np.float32).view(np.uint32) >> 16).astype(np.uint16), type="bf16")
        synchronizer.end_step()
        return [synchronizer.finish(name).stream.to_dense().tolist() for name in "hb"]

    assert tulle.threads(2, function) == [[[1.5, -2.0]] * 2] * 2


def test_what_is_not_right_is_refused_with_what_to_call():
    def function(comm):
        synchronizer = tulle.Synchronizer({"w": 4}, comm=comm)
        with pytest.raises(tulle.BadInputError, match="f32, f16 or bf16"):
            synchronizer.start("w", np.zeros(4))
        with pytest.raises(tulle.BadInputError, match="4 values"):
            synchronizer.start("w", np.zeros(3, np.float32))
        with pytest.raises(KeyError, match="no parameter is called 'v'"):
            synchronizer.start("v", np.zeros(4, np.float32))
        with pytest.raises(TypeError, match="astype"):
            synchronizer.finish_into("w", np.zeros(4))
        with pytest.raises(TypeError, match="gradients are of list: pass a dict"):
            synchronizer.step([np.zeros(4, np.float32)])
        with pytest.raises(TypeError, match="no option 'sead'"):
            tulle.Synchronizer({"w": 4}, comm=comm, sead=1)
        with pytest.raises(tulle.BadInputError, match="there are dense, noop"):
            tulle.Synchronizer({"w": 4}, "topp", comm=comm)

    tulle.threads(1, function)


def test_a_step_that_is_refused_has_started_nothing():
    def function(comm):
        synchronizer = tulle.Synchronizer({"w": 4, "b": 2}, comm=comm)
        for wrong in ({"b": np.zeros(2)}, {"b": np.zeros(3, np.float32)}, {"v": np.zeros(2, np.float32)}, {"b": [0, 0]}):
            with pytest.raises((TypeError, ValueError, KeyError)):
                synchronizer.step({"w": np.ones(4, np.float32), **wrong})
        gradients = {"w": np.ones(4, np.float32), "b": np.ones(2, np.float32)}
        synchronizer.step(gradients)
        return gradients["w"].tolist(), synchronizer.steps

    assert tulle.threads(2, function)[0] == ([1, 1, 1, 1], 1)


def test_ranks_that_differ_are_told_where():
    def function(comm):
        with pytest.raises(tulle.MismatchError, match="parameter 0 is w of 4 values.*w of 5 values"):
            tulle.Synchronizer({"w": 4 + comm.rank}, comm=comm)

    tulle.threads(2, function)


def test_a_gradient_that_is_not_finite_ends_the_step_on_all_ranks():
    def function(comm):
        synchronizer = tulle.Synchronizer({"w": 4}, comm=comm)
        gradient = np.array([0, np.inf if comm.rank == 1 else 1, 0, 0], np.float32)
        with pytest.raises(tulle.Error, match="w is not finite at index 1"):
            synchronizer.step({"w": gradient})
            synchronizer.step({"w": np.zeros(4, np.float32)})

    tulle.threads(2, function)


def test_states_and_files_go_on_also_on_another_number_of_ranks(tmp_path):
    def save(comm):
        synchronizer = tulle.Synchronizer({"w": SIZE}, "topk:1%|aggregate:sum", comm=comm)
        synchronizer.step({"w": gradient_of(comm.rank, 0)})
        synchronizer.save_checkpoint(tmp_path / "state")
        return synchronizer.residual("w"), synchronizer.save_state()

    def load(comm, states):
        by_file, by_state = (
            tulle.Synchronizer({"w": SIZE}, "topk:1%|aggregate:sum", comm=comm, first_channel=channel)
            for channel in (1, 100)
        )
        by_file.load_checkpoint(tmp_path / "state")
        by_state.load_state(states)
        assert np.array_equal(by_file.residual("w"), by_state.residual("w")) and by_file.steps == 1
        return by_file.residual("w")

    saved = tulle.threads(4, save)
    loaded = tulle.threads(2, load, [state for _, state in saved])
    assert np.array_equal(sum(residual for residual, _ in saved), sum(loaded))


def test_reports_and_plans_have_what_they_promise():
    def function(comm):
        synchronizer = tulle.Synchronizer({"w": SIZE, "b": 3}, "dgc:1%", comm=comm)
        synchronizer.step({"w": gradient_of(comm.rank, 0)})
        return synchronizer.plan(), synchronizer.plan_text(), synchronizer.report()

    (plan, table, report), (_, _, other) = tulle.threads(2, function)
    assert plan[0]["how"] == "sampled_top_k" and plan[0]["state_bytes"] == 8 * SIZE
    assert "sampled_top_k" in table and report == other and "recipe           dgc" in report


def test_ctrl_c_ends_a_wait_and_tells_the_others():
    source = """
comm = tulle.connect()
synchronizer = tulle.Synchronizer({"w": 4}, comm=comm)
try:
    report(ready=True)
    if comm.rank == 1:
        sys.stdin.readline()
    for _ in range(2):  # the first may end on rank 1, which has all that it needs of rank 0
        synchronizer.step({"w": np.ones(4, np.float32)})
except KeyboardInterrupt:
    report(interrupted=True)
except tulle.Error as error:
    report(kind=error.kind, text=str(error))
"""
    with Job(2, source) as job:
        job.line(0), job.line(1)
        time.sleep(0.3)
        job.processes[0].send_signal(signal.SIGINT)
        assert job.line(0) == {"interrupted": True}
        job.tell(1)
        told = job.end(1)
        # A signal that comes while rank 0 does not wait yet ends its script and no exchange.
        assert "interrupted" in told["text"] or "left the job" in told["text"], told
        assert job.processes[0].wait(60) == 0


def test_calls_in_a_forked_child_raise():
    reports = run_ranks(
        2,
        """
comm = tulle.connect()
comm.start_progress_thread()
synchronizer = tulle.Synchronizer({"w": 4}, comm=comm)
faulthandler.cancel_dump_traceback_later()
child = os.fork()
if child == 0:
    told = error_of(lambda: synchronizer.step({"w": np.ones(4, np.float32)}))
    del synchronizer, comm
    sys.exit(0 if told and "forked" in told["text"] else 7)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
gradient = np.ones(4, np.float32)
synchronizer.step({"w": gradient})
report(child=status, value=float(gradient[0]))
""",
    )
    assert reports == [{"child": 0, "value": 1.0}] * 2


def test_training_goes_on_without_a_process_that_was_killed():
    source = """
comm = tulle.connect()
number = comm.rank  # its rank may change
weights = np.zeros(3000, np.float32)
synchronizer = tulle.Synchronizer({"w": 3000}, "topk:2%,dense_below=0", comm=comm, undo=True)
changes = []

def step(count):
    gradient = np.random.default_rng([number, count]).integers(-8, 9, 3000).astype(np.float32)
    synchronizer.start("w", gradient)
    synchronizer.end_step()
    if (number, count) == (1, 5):
        os.kill(os.getpid(), signal.SIGKILL)
    synchronizer.finish_into("w", gradient)
    weights[:] -= gradient

told = tulle.run_elastic(synchronizer, step, 12, arrays=[weights], on_change=changes.append, deadline=60, patience=30)
report(told=told, size=comm.size, changes=changes, model=weights.tolist(), steps=synchronizer.steps)
"""
    with Job(3, source) as job:
        first, second = job.end(0), job.end(2)
        assert job.processes[1].wait() == -signal.SIGKILL
    assert first["model"] == second["model"] and any(first["model"])
    for each in (first, second):
        assert each["told"]["steps"] == each["steps"] == 12 and each["size"] == 2
        assert each["told"]["lost"] == [[1, None]]
        assert [change["survivors"] for change in each["changes"]] == [[0, 2]]


def test_errors_of_a_step_that_nobody_can_help_come_through():
    def function(comm):
        synchronizer = tulle.Synchronizer({"w": 4}, comm=comm, undo=True)

        def step(number):
            raise KeyError("no such batch")

        with pytest.raises(KeyError, match="no such batch"):
            tulle.run_elastic(synchronizer, step, 3)
        return synchronizer.steps

    assert tulle.threads(2, function) == [0, 0]


def test_a_recipe_that_keeps_nothing_takes_no_memory_for_it():
    reports = run_ranks(
        1,
        """
size = 8_000_000
gradient = np.ones(size, np.float32)
resident = lambda: int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
before = resident()
told = {}
for recipe in ("dense", "topk"):
    synchronizer = tulle.Synchronizer({"w": size}, recipe)
    synchronizer.step({"w": gradient})
    told[recipe] = synchronizer.plan()[0]["state_bytes"], (resident() - before) / size
    del synchronizer
report(**told)
""",
    )
    assert reports[0]["dense"][0] == 0 and reports[0]["dense"][1] < 3, reports
    assert reports[0]["topk"][0] == 32_000_000, reports


def test_a_rank_that_makes_none_is_named_within_the_deadline():
    def function(comm):
        if comm.rank == 1:
            return None
        with pytest.raises(tulle.DeadlineError) as caught:
            tulle.Synchronizer({"w": 4}, comm=comm, deadline=0.5)
        return str(caught.value)

    assert "rank 1" in tulle.threads(2, function)[0]
