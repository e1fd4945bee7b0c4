"""Ranks as real processes over TCP on this host."""
import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys

PROLOGUE = """
import faulthandler, json, os, signal, sys, time
faulthandler.dump_traceback_later(100, exit=True)
import numpy as np
import tulle

def report(**result):
    print(json.dumps(result), flush=True)

def error_of(call):
    try:
        call()
    except tulle.Error as error:
        return dict(kind=error.kind, type=type(error).__name__, rank=error.rank, peer=error.peer, text=str(error))
    return None
"""


_tries = itertools.count(31 * os.getpid())


def free_port():
    """A port that nobody has, below those that the system hands out by itself: so it stays free until it is used."""
    for number in _tries:
        port = 20_000 + number % 12_000
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError  # it counts for ever


class Job:
    """Processes that run the same source, each with the environment of its rank."""

    def __init__(self, size, source):
        address = f"127.0.0.1:{free_port()}"
        self.processes = []
        for rank in range(size):
            environment = dict(os.environ, TULLE_ADDRESS=address, TULLE_RANK=str(rank), TULLE_SIZE=str(size))
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", PROLOGUE + source],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def line(self, rank):
        """The next report of a rank."""
        text = self.processes[rank].stdout.readline()
        assert text, f"rank {rank} ended: {self.processes[rank].stderr.read()}"
        return json.loads(text)

    def tell(self, rank):
        """Lets a rank go on that reads a line."""
        self.processes[rank].stdin.write("go on\n")
        self.processes[rank].stdin.flush()

    def end(self, rank):
        """The last report of a rank that ends well."""
        out, err = self.processes[rank].communicate(timeout=110)
        assert self.processes[rank].returncode == 0, f"rank {rank}: {err}"
        return json.loads(out.strip().splitlines()[-1])

    def end_all(self):
        return [self.end(rank) for rank in range(len(self.processes))]


def run_ranks(size, source):
    """The last report of every rank."""
    with Job(size, source) as job:
        return job.end_all()
