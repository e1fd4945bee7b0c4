#!/usr/bin/python3
"""Jobs of real processes whose ranks are killed (SIGKILL) and stopped (SIGSTOP) at random moments.

Each job has 3 to 8 ranks (tulle_storm_rank) on TCP sockets, of which some read each other's memory. They sum without end,
check every sum, and where a call fails they shrink and go on. A job's number and the seed decide how many ranks it has,
how they are connected, whom it strikes, how, and how long it waits between; the processor decides the rest.

What must hold, or the job fails and is named:
- every rank that was not struck gets an error of a kind, with words, within the deadline, or the heartbeats' limit, or
  goes on;
- it goes on wherever more than half of the last communicator's members were not struck; else it may be `excluded`;
- whoever is in one epoch is in it with the same members, and every sum is right;
- a rank that was stopped and continued goes on or is told that it is excluded;
- nothing is left: no process, no file, no shared memory, no namespace.
"""

import argparse
import concurrent.futures
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

SUM_SECONDS = 1.0  # the deadline of a call, as tulle_storm_rank has it
HEARTBEAT_SECONDS = 3.0  # after which a silent rank is known where there are heartbeats, and calls have long deadlines
PATIENCE_SECONDS = 3.0  # how long survivors wait for a silent one
# How much later than its deadline an error may come, and how long anything else may take: for machines that are busy
# with other work. What was measured is in the table.
SLACK_SECONDS = 15.0
BOUND_SECONDS = 60.0

STOPPED, EXCLUDED, NOT_STARTED = 0, 3, 6  # how a rank may end, as tulle_storm_rank has it


class Failure(Exception):
    """Something that must hold does not."""


# ---------------------------------------------------------------- plans

class Strike:
    """What is done to one rank: a signal, and for one that is stopped what comes after."""

    def __init__(self, chance, victim):
        self.victim = victim
        self.wait = chance.uniform(0, 0.25)  # seconds of well-being before it
        self.is_stop = chance.random() < 0.4
        self.length = chance.choice(["short", "racing", "long"]) if self.is_stop else ""
        self.stop_seconds = {"short": chance.uniform(0.01, 0.7) * SUM_SECONDS,
                             "racing": SUM_SECONDS + chance.uniform(-0.1, 1.2) * PATIENCE_SECONDS}.get(self.length)
        self.is_continued = self.is_stop and (self.length != "long" or chance.random() < 0.5)
        self.is_with_next = chance.random() < 0.25  # the next strike comes while survivors still deal with this one

    def be_kill_within(self, seconds):
        self.wait = seconds
        self.is_stop, self.length, self.stop_seconds, self.is_continued = False, "", None, False

    def name(self):
        return f"SIGSTOP, {self.length}" if self.is_stop else "SIGKILL"


class Plan:
    """One job, decided by its seed and number."""

    def __init__(self, seed, number):
        chance = random.Random(f"{seed}/{number}")
        self.seed_of_all, self.number = seed, number
        self.seed = chance.randrange(2**32)
        self.ranks = chance.randint(3, 8)
        self.ways = [chance.choice(["memory", "sockets"])]
        self.ways += [way for way in ("lazy", "thread") if chance.random() < 0.25]
        # Heartbeats are heard over connections that are there, not over those that are made on demand.
        self.has_heartbeats = "lazy" not in self.ways and chance.random() < 0.4
        self.ways += ["heartbeat"] if self.has_heartbeats else []
        self.is_while_starting = chance.random() < 0.06
        victims = chance.sample(range(self.ranks), self.ranks)
        most = 1 if self.is_while_starting else self.ranks - 2
        self.strikes = [Strike(chance, victim) for victim in victims[:chance.randint(1, min(most, 4))]]
        if self.is_while_starting:
            self.strikes[0].be_kill_within(chance.uniform(0, 0.1))
            self.ways.append("hasty")
        self.strikes[-1].is_with_next = False

    def describe(self):
        strikes = ", ".join(f"rank {strike.victim} by {strike.name()}{' at once with' if strike.is_with_next else ''}"
                            for strike in self.strikes)
        when = " while it starts" if self.is_while_starting else ""
        return f"job {self.number}: {self.ranks} ranks ({', '.join(self.ways)}){when}: {strikes}"


# ---------------------------------------------------------------- a job

class Rank:
    """A process and what it says."""

    def __init__(self, program, plan, rank, directory):
        self.rank = rank
        self.log_path = os.path.join(directory, f"log.{rank}")
        self.events, self.read_bytes = [], 0
        self.was_struck = self.is_struck = self.was_killed = self.is_halted = False
        with open(os.path.join(directory, f"err.{rank}"), "wb") as errors:
            self.process = subprocess.Popen(
                [program, directory, str(rank), str(plan.ranks), str(plan.seed), *plan.ways], stdin=subprocess.DEVNULL,
                stdout=errors, stderr=errors, env={**os.environ, "TMPDIR": directory, "TULLE_STORM": directory})

    def read_log(self):
        """Takes up the whole lines that are new."""
        if not os.path.exists(self.log_path):
            return
        with open(self.log_path, "rb") as file:
            file.seek(self.read_bytes)
            text = file.read()
        whole = text[:text.rfind(b"\n") + 1]
        self.read_bytes += len(whole)
        self.events += [json.loads(line) for line in whole.splitlines()]

    def last(self, *names):
        return next((event for event in reversed(self.events) if event["event"] in names), None)

    def first_since(self, moment, is_wanted):
        return next((event for event in self.events if event["at"] >= moment and is_wanted(event)), None)

    def has_ended(self):
        return self.process.poll() is not None


class Job:
    """A plan as it runs."""

    def __init__(self, program, plan, directory):
        self.plan = plan
        self.directory = directory
        os.mkdir(os.path.join(directory, "meet"))
        self.samples = []  # for the table: a dict for each strike
        self.shared_memory = set()
        self.may_exclude = plan.is_while_starting
        self.members = list(range(plan.ranks))
        self.ranks = [Rank(program, plan, rank, directory) for rank in range(plan.ranks)]

    def run(self):
        try:
            if not self.plan.is_while_starting:
                self.wait_until(self.is_well_since(0), "the job does not begin")
            pending = []
            for strike in self.plan.strikes:
                if self.ranks[strike.victim].has_ended():
                    continue  # excluded, after too many had died at once
                time.sleep(strike.wait / 10 if pending else strike.wait)
                pending.append(self.strike(strike))
                if not strike.is_with_next:
                    self.recover(pending)
                    pending = []
            if pending:
                self.recover(pending)
            self.stop()
        finally:
            self.end()
        self.check()

    # ------------------------------------------------ strikes

    def strike(self, strike):
        rank = self.ranks[strike.victim]
        self.look_at_memory()
        begun = time.monotonic()
        rank.process.send_signal(signal.SIGSTOP if strike.is_stop else signal.SIGKILL)
        rank.was_struck = rank.is_struck = True
        rank.was_killed, rank.is_halted = not strike.is_stop, strike.is_stop
        name = "SIGKILL, starting" if self.plan.is_while_starting else strike.name()
        name += ", heartbeats" if strike.is_stop and self.plan.has_heartbeats else ""
        self.samples.append({"strike": name})
        return strike, begun

    def recover(self, pending):
        """Waits until whoever is left is well again, and continues or ends those that were stopped."""
        untouched = [rank for rank in self.members if not self.ranks[rank].is_struck]
        if 2 * len(untouched) <= len(self.members):
            self.may_exclude = True
        last = max(begun for _, begun in pending)
        for strike, begun in pending:
            if strike.stop_seconds is not None:
                time.sleep(max(0, begun + strike.stop_seconds - time.monotonic()))
                last = self.resume(strike)
        self.wait_until(self.is_well_since(last), "survivors do not go on")
        for strike, _ in pending:
            if strike.length == "long":
                last = self.resume(strike)
        if last > pending[-1][1]:
            self.wait_until(self.is_well_since(last), "ranks do not go on after a rank was continued")
        for strike, _ in pending:  # one that is back is as good as the others
            self.ranks[strike.victim].is_struck = strike.victim not in self.members or self.ranks[strike.victim].was_killed
        if len(pending) == 1:
            self.measure(*pending[0])

    def resume(self, strike):
        rank = self.ranks[strike.victim]
        rank.is_halted = False
        rank.was_killed = not strike.is_continued
        rank.process.send_signal(signal.SIGCONT if strike.is_continued else signal.SIGKILL)
        return time.monotonic()

    def measure(self, strike, begun):
        """When the others knew, and when they were well without it."""
        others = [rank for rank in self.ranks if rank.rank != strike.victim]
        told = [rank.first_since(begun, lambda event: event["event"] in ("error", "not_started")) for rank in others]
        again = [rank.first_since(begun, lambda event: event["event"] == "well" and
                                  strike.victim not in event["members"]) for rank in others]
        self.samples[-1]["told"] = [event["at"] - begun for event in told if event]
        self.samples[-1]["again"] = [event["at"] - begun for event in again if event]

    # ------------------------------------------------ waiting

    def is_well_since(self, moment):
        """All who are left have summed since then, as members of one communicator, or have ended."""
        def holds():
            goes_on = []
            for rank in self.ranks:
                rank.read_log()
                if rank.has_ended() or rank.is_halted:
                    continue
                event = rank.last("well")
                if event is None or event["at"] <= moment:
                    return False
                goes_on.append(event)
            gone = {rank.rank for rank in self.ranks if rank.has_ended() or rank.is_halted}
            for event in goes_on:
                if gone & set(event["members"]) or event["members"] != goes_on[0]["members"]:
                    return False
            self.members = goes_on[0]["members"] if goes_on else []
            return True
        return holds

    def wait_until(self, holds, complaint):
        end = time.monotonic() + BOUND_SECONDS
        while not holds():
            self.check_codes()
            if time.monotonic() > end:
                raise Failure(f"{complaint} within {BOUND_SECONDS:.0f} s")
            time.sleep(0.01)

    def stop(self):
        open(os.path.join(self.directory, "stop"), "wb").close()
        self.wait_until(lambda: all(rank.has_ended() for rank in self.ranks), "ranks do not end")

    def end(self):
        for rank in self.ranks:
            if not rank.has_ended():
                rank.process.kill()
            rank.process.wait()
            rank.read_log()

    # ------------------------------------------------ what must hold

    def check(self):
        self.check_codes()
        self.check_epochs()
        self.check_errors()
        self.check_leaks()

    def check_codes(self):
        for rank in self.ranks:
            code = rank.process.poll()
            if code is None or code == STOPPED:
                continue
            rank.read_log()
            is_right = code == EXCLUDED and (self.may_exclude or rank.was_struck)
            is_right = is_right or code == -signal.SIGKILL and rank.was_killed
            is_right = is_right or code == NOT_STARTED and self.plan.is_while_starting
            if not is_right:
                raise Failure(f"rank {rank.rank} ended with {code}: {rank.events[-1] if rank.events else 'no word'}")

    def check_epochs(self):
        known = {}
        for rank in self.ranks:
            for event in rank.events:
                if event["event"] != "well":
                    continue
                if rank.rank not in event["members"]:
                    raise Failure(f"rank {rank.rank} is no member of its communicator: {event}")
                members = known.setdefault(event["epoch"], event["members"])
                if members != event["members"]:
                    raise Failure(f"epoch {event['epoch']} has members {members} and {event['members']}")

    def check_errors(self):
        for rank in self.ranks:
            if rank.was_struck:
                continue  # it was stopped for a while, which no deadline knows of
            for event in rank.events:
                if event["event"] != "error":
                    continue
                if not event["kind"] or len(event["what"]) < 10:
                    raise Failure(f"rank {rank.rank} has an error without words: {event}")
                late = event["at"] - event["began"] - (HEARTBEAT_SECONDS if self.plan.has_heartbeats else SUM_SECONDS)
                if late > SLACK_SECONDS:
                    raise Failure(f"rank {rank.rank} had its error {late:.1f} s after the deadline: {event}")

    def look_at_memory(self):
        """Shared memory and namespaces of a rank that lives; whatever there is must be gone with it."""
        for rank in self.ranks:
            try:
                with open(f"/proc/{rank.process.pid}/maps", encoding="utf-8", errors="replace") as maps:
                    paths = {line.split()[-1] for line in maps if "/dev/shm/" in line}
                if os.readlink(f"/proc/{rank.process.pid}/ns/net") != os.readlink("/proc/self/ns/net"):
                    raise Failure(f"rank {rank.rank} made a network namespace")
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            self.shared_memory |= paths

    def check_leaks(self):
        left = [path for path in self.shared_memory if os.path.exists(path)]
        left += shared_segments({rank.process.pid for rank in self.ranks})
        left += processes_of(self.directory)
        expected = {f"{name}.{rank}" for name in ("log", "err") for rank in range(self.plan.ranks)} | {"meet", "stop"}
        left += sorted(set(os.listdir(self.directory)) - expected)
        if left:
            raise Failure(f"something is left: {left}")


def shared_segments(pids):
    """System V segments that one of these processes made."""
    with open("/proc/sysvipc/shm", encoding="utf-8") as table:
        return [f"shared memory {line.split()[1]}" for line in list(table)[1:] if int(line.split()[4]) in pids]


def processes_of(directory):
    """Processes that were started for that job, and what they started."""
    found = []
    wanted = f"TULLE_STORM={directory}".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(f"process {pid}")
        except OSError:
            continue
    return found


def run_job(program, plan):
    """What the strikes of a job gave. Raises Failure, which then says where the job's logs are."""
    directory = tempfile.mkdtemp(prefix="tulle_storm_")
    try:
        job = Job(program, plan, directory)
        job.run()
    except Failure as failure:
        raise Failure(f"{plan.describe()}: {failure}\nits logs: {directory}\n"
                      f"alone: scripts/storm --seed {plan.seed_of_all} --job {plan.number}") from failure
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    shutil.rmtree(directory)
    return job.samples


# ---------------------------------------------------------------- many jobs

def plans_for(seed, kills):
    """Jobs 1, 2, ... until they have so many strikes."""
    plans, strikes = [], 0
    while strikes < kills:
        plans.append(Plan(seed, len(plans) + 1))
        strikes += len(plans[-1].strikes)
    return plans


class State:
    """The jobs that are done, in a file, so that a run that was ended goes on."""

    def __init__(self, path, seed, is_fresh):
        self.path = path
        self.done = {}
        if path and os.path.exists(path) and not is_fresh:
            with open(path, encoding="utf-8") as file:
                kept = json.load(file)
            if kept["seed"] == seed:
                self.done = {int(number): samples for number, samples in kept["done"].items()}
        self.seed = seed

    def add(self, number, samples):
        self.done[number] = samples
        if not self.path:
            return
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            json.dump({"seed": self.seed, "done": self.done}, file)
        os.replace(self.path + ".new", self.path)


    def forget(self):
        """The next run begins anew: the program may be another one."""
        if self.path and os.path.exists(self.path):
            os.remove(self.path)


class Progress:
    """A bar on a terminal, else a line now and then."""

    def __init__(self, all_kills):
        self.all_kills, self.begun, self.shown = all_kills, time.monotonic(), 0
        self.at_begin = None

    def show(self, kills):
        self.at_begin = kills if self.at_begin is None else self.at_begin
        seconds = time.monotonic() - self.begun
        rate = (kills - self.at_begin) / seconds if seconds > 0 else 0
        left = f", about {(self.all_kills - kills) / rate / 60:.0f} min left" if rate > 0 else ""
        if sys.stderr.isatty():
            filled = 30 * min(kills, self.all_kills) // self.all_kills
            print(f"\r[{'#' * filled}{'.' * (30 - filled)}] {kills} of {self.all_kills} kills{left}  ", end="",
                  file=sys.stderr, flush=True)
        elif kills - self.shown >= max(1, self.all_kills // 20):
            print(f"{kills} of {self.all_kills} kills{left}", file=sys.stderr, flush=True)
            self.shown = kills

    def end(self):
        if sys.stderr.isatty():
            print(file=sys.stderr)


def kills_in(state):
    return sum(len(samples) for samples in state.done.values())


def run_all(arguments, state):
    plans = plans_for(arguments.seed, arguments.kills)
    left = [plan for plan in plans if plan.number not in state.done]
    if len(left) < len(plans):
        print(f"goes on: {len(plans) - len(left)} of {len(plans)} jobs are done", file=sys.stderr)
    progress = Progress(sum(len(plan.strikes) for plan in plans))
    progress.show(kills_in(state))
    is_over = threading.Event()

    def one(plan):
        return None if is_over.is_set() else run_job(arguments.rank_program, plan)

    with concurrent.futures.ThreadPoolExecutor(arguments.at_a_time) as pool:
        jobs = {pool.submit(one, plan): plan for plan in left}
        try:
            for job in concurrent.futures.as_completed(jobs):
                if (samples := job.result()) is not None:
                    state.add(jobs[job].number, samples)
                    progress.show(kills_in(state))
        finally:
            is_over.set()
            progress.end()
    return [sample for plan in plans for sample in state.done[plan.number]]


def table_of(samples):
    rows = []
    for name in sorted({sample["strike"] for sample in samples}):
        of_name = [sample for sample in samples if sample["strike"] == name]
        alone = [sample for sample in of_name if "told" in sample]
        row = {"strike": name, "kills": len(of_name), "alone": len(alone)}
        for field in ("told", "again"):
            times = [seconds for sample in alone for seconds in sample[field]]
            row |= {field: len(times), f"{field}_median_seconds": statistics.median(times) if times else None,
                    f"{field}_worst_seconds": max(times, default=None)}
        rows.append(row)
    return rows


def milliseconds(seconds):
    return "-" if seconds is None else f"{seconds * 1000:.{0 if seconds >= 0.1 else 1}f}"


def print_table(rows):
    print(f"{'':28}{'':>7}{'':>8}{'told, milliseconds':>24}{'well again, milliseconds':>27}")
    print(f"{'strike':28}{'kills':>7}{'alone':>8}{'ranks':>8}{'median':>8}{'worst':>8}{'ranks':>8}{'median':>8}{'worst':>8}")
    for row in rows:
        cells = [row["told"], milliseconds(row["told_median_seconds"]), milliseconds(row["told_worst_seconds"]),
                 row["again"], milliseconds(row["again_median_seconds"]), milliseconds(row["again_worst_seconds"])]
        print(f"{row['strike']:28}{row['kills']:>7}{row['alone']:>8}" + "".join(f"{cell:>8}" for cell in cells))


def parse(arguments):
    parser = argparse.ArgumentParser(prog="scripts/storm", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="strikes in all (1000)")
    parser.add_argument("--json", metavar="FILE", help="write the table as one line of JSON")
    parser.add_argument("--seed", type=int, default=1, help="of all jobs (1)")
    parser.add_argument("--job", type=int, metavar="N", help="run that job alone, and say what each rank wrote")
    parser.add_argument("--at-a-time", type=int, default=3, help="jobs that run beside each other (3)")
    parser.add_argument("--fresh", action="store_true", help="begin anew, where a run was ended before")
    parser.add_argument("--state", default="", help=argparse.SUPPRESS)
    parser.add_argument("--rank-program", required=True, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def replay(arguments):
    plan = Plan(arguments.seed, arguments.job)
    print(plan.describe())
    for sample in run_job(arguments.rank_program, plan):
        print(json.dumps(sample))


def main():
    arguments = parse(sys.argv[1:])
    try:
        if arguments.job is not None:
            return replay(arguments)
        state = State(arguments.state, arguments.seed, arguments.fresh)
        samples = run_all(arguments, state)
        state.forget()
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 1
    rows = table_of(samples)
    print_table(rows)
    if arguments.json:
        result = {"kind": "storm", "seed": arguments.seed, "kills": len(samples), "deadline_seconds": SUM_SECONDS,
                  "patience_seconds": PATIENCE_SECONDS, "rows": rows}
        with open(arguments.json, "w", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
