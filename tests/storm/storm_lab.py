#!/usr/bin/python3
"""A training in the network lab that loses a host every so often and gets it back.

One rank (tulle_elastic_rank) runs on each host. First it is left alone for a while; then, every so many seconds, a host is
lost: its rank is killed, and some seconds later another one starts there and joins the job between two steps. At the end
it is left alone once more. What is compared is goodput: steps that were kept, times the ranks that took part in them, a
second.

What must hold, or the run fails: the survivors of every loss go on, every newcomer comes in, all ranks end with the same
weights, and the loss has fallen.
"""

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

STOPPED, EXCLUDED = 0, 3  # how a rank may end, as rank_log.hpp has it
BOUND_SECONDS = 120.0  # for whatever the script waits for, on machines that are busy with other work
WARM_STEPS = 8  # at the start, which are not counted
LEAST_STEPS = 64  # for a loss that falls, however slow the machine is


class Failure(Exception):
    """Something that must hold does not."""


class Life:
    """One process on a host, and what it wrote."""

    def __init__(self, job, host, number):
        self.job, self.host, self.number = job, host, number
        self.path = os.path.join(job.directory, f"log.{host}.{number}")
        self.events, self.offset = [], 0
        self.was_killed = False
        command = ["ip", "netns", "exec", job.namespace(host), job.options.rank_program, job.directory, job.namespace(host),
                   str(host), str(number), str(job.hosts), str(job.options.hidden), str(job.options.compute)]
        self.started = time.monotonic()
        with open(os.path.join(job.directory, f"err.{host}.{number}"), "wb") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)

    def read(self):
        """What it has written by now."""
        if not os.path.exists(self.path):
            return self.events
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            whole, _, _ = file.read().rpartition(b"\n")
        if whole:
            self.offset += len(whole) + 1
            self.events += [json.loads(line) for line in whole.split(b"\n")]
        return self.events

    def first(self, event, since=0.0):
        """Its first event of that name at that time or later, or None."""
        return next((found for found in self.read() if found["event"] == event and found["at"] >= since), None)

    def last(self, event):
        return next((found for found in reversed(self.read()) if found["event"] == event), None)

    def is_in(self):
        """It lives and has taken part in a step."""
        return self.process.poll() is None and not self.was_killed and self.first("step") is not None

    def kill(self):
        self.was_killed = True
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Strike:
    """A host that was lost, who was there without it, and who came in its place."""

    def __init__(self, victim, survivors, had_door):
        self.victim, self.survivors, self.had_door = victim, survivors, had_door
        self.at = time.monotonic()
        self.newcomer = None

    def recovery_seconds(self):
        """From the strike until all who were left had finished a step without the victim; None while they have not."""
        moments = []
        for life in self.survivors:
            change = next((event for event in life.read() if event["event"] == "change" and event["lost"] and
                           event["at"] >= self.at), None)
            step = change and life.first("step", change["at"])
            if step:
                moments.append(step["at"])
            elif not life.was_killed:
                return None
        return max(moments) - self.at if moments else None

    def join_seconds(self):
        """From the start of the newcomer to its first step."""
        step = self.newcomer and self.newcomer.first("step")
        return step["at"] - self.newcomer.started if step else None


class Job:
    def __init__(self, options, directory):
        self.options, self.directory = options, directory
        self.lab = json.loads(os.environ["TULLE_LAB"])
        self.hosts = self.lab["hosts"]
        self.chance = random.Random(options.seed)
        self.lives, self.strikes, self.excluded = [], [], 0
        self.windows = {"undisturbed": [], "disturbed": []}  # of time: begin and end

    def namespace(self, host):
        return f"tulle-{self.lab['name']}-{host}"

    # ------------------------------------------------ running

    def run(self):
        os.mkdir(os.path.join(self.directory, "meet"))
        try:
            for host in range(self.hosts):
                self.lives.append(Life(self, host, 0))
            self.wait_until(lambda: self.finished_steps() >= WARM_STEPS, "the training does not begin")
            self.leave_alone()
            self.disturb()
            self.leave_alone()
            self.stop()
        finally:
            for life in self.lives:
                if life.process.poll() is None:
                    life.kill()
        self.check_end()

    def leave_alone(self):
        begun = time.monotonic()
        self.watch(begun + self.options.calm * 30)  # a half of it
        self.windows["undisturbed"].append((begun, time.monotonic()))

    def disturb(self):
        begun, every = time.monotonic(), self.options.every
        for number in range(max(1, round(self.options.minutes * 60 / every))):
            self.watch(begun + (number + 0.25) * every)
            self.strike(takes_door=number % 3 == 1)
            self.watch(self.strikes[-1].at + self.options.away)
            self.give_back()
            self.watch(begun + (number + 1) * every)
        self.windows["disturbed"].append((begun, time.monotonic()))
        self.wait_until(self.is_whole, "a rank that was started again does not come in")

    def strike(self, takes_door):
        self.wait_until(lambda: self.door_holder().is_in(), "rank 0 does not open a door")
        there, holder = [life for life in self.lives if life.is_in()], self.door_holder()
        victim = holder if takes_door else self.chance.choice(there)
        if self.options.dark:
            subprocess.run(["ip", "-n", self.namespace(victim.host), "link", "set", "eth0", "down"], check=True)
        self.strikes.append(Strike(victim, [life for life in there if life is not victim], victim is holder))
        victim.kill()

    def give_back(self):
        host = self.strikes[-1].victim.host
        if self.options.dark:
            subprocess.run(["ip", "-n", self.namespace(host), "link", "set", "eth0", "up"], check=True)
        self.strikes[-1].newcomer = self.start_again(host)

    def start_again(self, host):
        life = Life(self, host, sum(other.host == host for other in self.lives))
        self.lives.append(life)
        return life

    def door_holder(self):
        """The last life on the host that the file names."""
        with open(os.path.join(self.directory, "door"), encoding="utf-8") as file:
            name = file.read().split()[0]
        return next(life for life in reversed(self.lives) if self.namespace(life.host) == name)

    def stop(self):
        self.wait_until(lambda: self.finished_steps() >= LEAST_STEPS, "the training does not go on")
        open(os.path.join(self.directory, "stop"), "wb").close()
        self.wait_until(lambda: all(life.process.poll() is not None for life in self.lives), "ranks do not end")

    # ------------------------------------------------ waiting

    def watch(self, end):
        while time.monotonic() < end:
            self.tend()
            time.sleep(0.02)

    def wait_until(self, holds, complaint):
        end = time.monotonic() + BOUND_SECONDS
        while not holds():
            self.tend()
            if time.monotonic() > end:
                raise Failure(f"{complaint} within {BOUND_SECONDS:.0f} s")
            time.sleep(0.02)

    def tend(self):
        """What a scheduler does: a rank that the others have excluded is started again. Nobody else may end."""
        for life in list(self.lives):
            code = life.process.poll()
            if code in (None, STOPPED) or life.was_killed:
                continue
            if code != EXCLUDED:
                raise Failure(f"host {life.host} ended with {code}: {life.read()[-1:] or 'no word'}")
            life.was_killed = True
            self.excluded += 1
            newcomer = self.start_again(life.host)
            for strike in self.strikes:
                strike.newcomer = newcomer if strike.newcomer is life else strike.newcomer

    def finished_steps(self):
        return max((step["step"] + 1 for life in self.lives if (step := life.last("step"))), default=0)

    def is_whole(self):
        """Whoever was last on each host has taken part in a step with all the others."""
        last = {life.host: life for life in self.lives}.values()
        return all(life.is_in() and life.last("step")["ranks"] == self.hosts for life in last)

    # ------------------------------------------------ what must hold, and what came out

    def check_end(self):
        ends = [end for life in self.lives if not life.was_killed and (end := life.last("end"))]
        if len(ends) != self.hosts or any(end["ranks"] != self.hosts for end in ends):
            raise Failure(f"{self.hosts} ranks do not end together: {ends}")
        if len({(end["crc"], end["step"]) for end in ends}) != 1:
            raise Failure(f"ranks end with different weights: {ends}")
        for strike in self.strikes:
            if strike.recovery_seconds() is None:
                raise Failure(f"survivors did not go on without host {strike.victim.host}")
            if strike.join_seconds() is None:
                raise Failure(f"host {strike.victim.host} did not come in again")
        first, last = self.losses()
        if not last < first:
            raise Failure(f"the loss was {first:.3f} and is {last:.3f}")

    def kept_steps(self):
        """The ranks and the end of each step as it was done last: what was undone is done again later."""
        kept = {}
        for event in itertools.chain.from_iterable(life.read() for life in self.lives):
            if event["event"] == "step" and event["at"] >= kept.get(event["step"], event)["at"]:
                kept[event["step"]] = event
        return [kept[step] for step in sorted(kept)]

    def losses(self):
        """The mean at the beginning and at the end: over ten steps and all ranks."""
        events = [event for life in self.lives for event in life.read() if event["event"] == "step"]
        last = max(event["step"] for event in events)
        return [statistics.mean(event["loss"] for event in events if begin <= event["step"] < begin + 10)
                for begin in (0, last - 9)]

    def goodput(self, phase):
        """Steps times ranks a second."""
        windows = self.windows[phase]
        done = sum(event["ranks"] for event in self.kept_steps()
                   if any(begin <= event["at"] < end for begin, end in windows))
        return done / sum(end - begin for begin, end in windows)

    def result(self):
        recoveries = [strike.recovery_seconds() for strike in self.strikes]
        joins = [strike.join_seconds() for strike in self.strikes]
        undisturbed, disturbed = self.goodput("undisturbed"), self.goodput("disturbed")
        first, last = self.losses()
        return {"kind": "storm_lab", "hosts": self.hosts, "rate": self.lab["rate"],
                "values": values_of(self.options.hidden), "compute_seconds": self.options.compute,
                "is_dark": self.options.dark, "every_seconds": self.options.every, "away_seconds": self.options.away,
                "disturbed_seconds": sum(end - begin for begin, end in self.windows["disturbed"]),
                "undisturbed_seconds": sum(end - begin for begin, end in self.windows["undisturbed"]),
                "strikes": len(self.strikes), "strikes_at_the_door": sum(strike.had_door for strike in self.strikes),
                "excluded": self.excluded, "steps": len(self.kept_steps()),
                "undisturbed_rank_steps_per_second": undisturbed, "disturbed_rank_steps_per_second": disturbed,
                "goodput": disturbed / undisturbed,
                "kill_to_step_median_seconds": statistics.median(recoveries), "kill_to_step_worst_seconds": max(recoveries),
                "start_to_step_median_seconds": statistics.median(joins), "start_to_step_worst_seconds": max(joins),
                "loss_first": first, "loss_last": last}


def values_of(hidden):
    """Of the model: see perceptron.cpp."""
    return 784 * hidden + hidden * hidden + hidden * 10


def print_result(job, result):
    for strike in job.strikes:
        print(f"host {strike.victim.host}{' with the door' if strike.had_door else '':14} lost: next step after "
              f"{strike.recovery_seconds():.2f} s; first step of the newcomer {strike.join_seconds():.2f} s after its start")
    print(f"undisturbed {result['undisturbed_rank_steps_per_second']:.2f} steps x ranks a second, disturbed "
          f"{result['disturbed_rank_steps_per_second']:.2f}: goodput {result['goodput']:.1%}")
    print(f"kill to next step: median {result['kill_to_step_median_seconds']:.2f} s, worst "
          f"{result['kill_to_step_worst_seconds']:.2f} s; newcomer's start to its first step: median "
          f"{result['start_to_step_median_seconds']:.2f} s, worst {result['start_to_step_worst_seconds']:.2f} s")
    print(f"{result['steps']} steps, loss {result['loss_first']:.3f} to {result['loss_last']:.3f}, the same weights on "
          f"all {result['hosts']} hosts")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="scripts/storm --lab", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=6, help="in which hosts are lost (6)")
    parser.add_argument("--calm", type=float, default=3, help="minutes without, a half before and a half after (3)")
    parser.add_argument("--every", type=float, default=60, help="seconds between two losses (60)")
    parser.add_argument("--away", type=float, default=10, help="seconds until a host is back (10)")
    parser.add_argument("--dark", action="store_true", help="the host's link goes down first: nobody is told of the death")
    parser.add_argument("--hidden", type=int, default=1536, help="units of each hidden layer (1536: 3.6 million values)")
    parser.add_argument("--compute", type=float, default=0.5, help="seconds that a gradient takes at least (0.5)")
    parser.add_argument("--seed", type=int, default=1, help="of the choice of hosts (1)")
    parser.add_argument("--json", metavar="FILE", help="write the result as one line of JSON")
    parser.add_argument("--rank-program", required=True, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options = parse(sys.argv[1:])
    directory = tempfile.mkdtemp(prefix="tulle_storm_lab_")
    job = Job(options, directory)
    try:
        job.run()
    except Failure as failure:
        print(f"{failure}\nlogs of the ranks: {directory}", file=sys.stderr)
        return 1
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    result = job.result()
    shutil.rmtree(directory)
    print_result(job, result)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
