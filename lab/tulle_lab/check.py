"""Known transfers between two hosts, to see that the links do what they say.

A long transfer must run at the rate, within 5 %. A short message (64 kB, more on links above 1 Gbit/s) must take about
its time on the wire: clearly less would mean that bursts pass unshaped. Both ends are on one machine, so they share a
clock and a one-way time is simply the difference of two readings.
"""

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass

from .errors import LabError
from .process import inside
from .units import format_rate

_PEER = os.path.join(os.path.dirname(os.path.realpath(__file__)), "check_peer.py")
_LONG_SECONDS = 0.3
_SHORT_BYTES = 65536
_SHORT_REPEATS = 15
_LONG_REPEATS = 3
_PORT = 19999

LONG_TOLERANCE = 0.05
SHORT_LEAST = 0.6
SHORT_MOST = 1.25
SHORT_LATENCY_SECONDS = 400e-6


@dataclass
class Result:
    """What one pair of hosts measured; `long` and `short` are (bytes, ideal seconds, measured seconds)."""

    source: int
    target: int
    rate_bits: int
    long: tuple
    short: tuple

    def faults(self):
        """Return what is out of bounds, one sentence each."""
        found = []
        _, ideal, measured = self.long
        if abs(measured / ideal - 1) > LONG_TOLERANCE:
            found.append(f"the long transfer took {measured / ideal:.0%} of its time, more than 5 % off")
        _, ideal, measured = self.short
        if measured < SHORT_LEAST * ideal:
            found.append(f"the short message took only {measured / ideal:.0%} of its time: the burst is too large")
        if measured > SHORT_MOST * ideal + SHORT_LATENCY_SECONDS:
            found.append(f"the short message took {measured / ideal:.0%} of its time: the machine is too busy")
        return found


def check(lab):
    """Measure host 0 to host 1, and both ways to each host whose rates differ; print, and raise on a fault."""
    if len(lab.hosts) < 2:
        raise LabError("a check needs two hosts")
    results = [measure(lab, source, target) for source, target in _pairs(lab)]
    for result in results:
        print(_line(result), file=sys.stderr)
    faults = [f"host {result.source} to {result.target}: {fault}" for result in results for fault in result.faults()]
    if faults:
        raise LabError("the shaping is off: " + "; ".join(faults))
    return results


def _pairs(lab):
    usual = lab.usual_rates()
    plain = [host.index for host in lab.hosts if (host.up_bits, host.down_bits) == usual]
    odd = [host.index for host in lab.hosts if host.index not in plain]
    anchor = plain[0]
    pairs = [tuple(plain[:2])] if len(plain) > 1 else []
    for index in odd:
        pairs += [(anchor, index), (index, anchor)]
    return pairs


def measure(lab, source, target):
    """Return the `Result` of known transfers from host `source` to host `target`."""
    sender, receiver = lab.hosts[source], lab.hosts[target]
    bits = min(sender.up_bits, receiver.down_bits)
    long_bytes = int(bits / 8 * _LONG_SECONDS)
    short_bytes = int(_SHORT_BYTES * max(1, bits / 10**9))
    sizes = [long_bytes // 3] + [long_bytes] * _LONG_REPEATS + [short_bytes] * _SHORT_REPEATS
    seconds = _transfer(sender, receiver, sizes)
    long_seconds = min(seconds[1:1 + _LONG_REPEATS])
    short_seconds = statistics.median(seconds[1 + _LONG_REPEATS:])

    def ideal(size):
        return lab.wire_bytes(size) * 8 / bits

    return Result(source, target, bits, (long_bytes, ideal(long_bytes), long_seconds),
                  (short_bytes, ideal(short_bytes), short_seconds))


def _transfer(sender, receiver, sizes):
    """Send messages of `sizes` one after the other and return the one-way seconds of each."""
    arguments = [receiver.address, str(_PORT), json.dumps(sizes)]
    listening = _start(receiver, ["receive", *arguments])
    sending = None
    try:
        if listening.stdout.readline() != "ready\n":
            raise LabError(f"the check cannot listen: {listening.communicate()[1]}")
        sending = _start(sender, ["send", *arguments])
        output, errors = listening.communicate(timeout=30)
        if listening.returncode:
            raise LabError(f"the check failed: {errors}")
        return json.loads(output)
    except subprocess.TimeoutExpired as error:
        raise LabError("the check did not end in 30 s: no packets pass") from error
    finally:
        for child in filter(None, (listening, sending)):
            child.kill()
            child.communicate()


def _start(host, arguments):
    return subprocess.Popen(inside(host.namespace, [sys.executable, _PEER, *arguments]), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _line(result):
    def part(name, sizes):
        size, ideal, measured = sizes
        share = measured / ideal
        return f"{name} of {size:,} bytes in {measured * 1e3:.3f} ms (wire {ideal * 1e3:.3f} ms, {share:.0%})"

    return (f"check host {result.source} to {result.target} at {format_rate(result.rate_bits)}: "
            f"{part('long', result.long)}; {part('short', result.short)}")
