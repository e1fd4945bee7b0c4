"""The command line: lab up, run, check, status, down, and with."""

import argparse
import contextlib
import json
import os
import re
import shlex
import sys
import time

from . import counters, guard, network, store
from .check import check
from .errors import Interrupted, LabError, RightsError, UsageError
from .launch import Job, run_command
from .plan import MAX_HOSTS, make_plan
from .process import ignore_signals, raise_on_signals
from .rights import explain, require_rights
from .units import format_rate, parse_rate, parse_size

_DESCRIPTION = """\
Real MPI over a slow network on one machine: hosts are network namespaces around a switch, links are shaped to a rate.
It needs root; where that is missing it says what to run instead.
"""

_EXAMPLES = """\
examples:
  lab with --hosts 8 --rate 100mbit -- ./program args     make a lab, run on 8 ranks, remove it
  lab up --hosts 8 --rate 1gbit --check                   make one that stays, and measure its links
  lab run -- ./program args                               run in it, as often as you like
  lab run --np 4 --mpi mpich --timeout 60 -- ./program    4 ranks, the other MPI, at most a minute
  lab run --torch -- train.py --epochs 1                  what torchrun would start, one process per host
  lab run --mpi-flags '--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 4' -- ./program
  lab up --name slow --hosts 4 --rate 1gbit --rate-of 3=100mbit    one slow host, beside the first lab
  lab up --hosts 4 --up-rate 20mbit --down-rate 100mbit   asymmetric links
  lab status                                              what exists
  lab down --all                                          remove all, also what a killed process left

exit codes: the command's own; 2 a wrong flag, 3 rights or programs missing, 124 --timeout passed, 125 the lab failed
"""


def main(arguments):
    """Do what the command line asks and return the exit code."""
    own, command = _split_command(arguments)
    options = _parser().parse_args(own)
    try:
        _require_command(options, command)
        raise_on_signals()
        return options.action(options, command) or 0
    except RightsError as error:
        print(explain(error, getattr(options, "np", None) or getattr(options, "hosts", 8), command), file=sys.stderr)
        return error.exit_code
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return error.exit_code
    except Interrupted as interruption:
        return interruption.exit_code


def _split_command(arguments):
    """Cut the arguments at the first `--`."""
    if "--" not in arguments:
        return arguments, []
    cut = arguments.index("--")
    return arguments[:cut], arguments[cut + 1:]


def _require_command(options, command):
    if options.takes_command and not command:
        raise UsageError(f"lab {options.verb} needs a command after `--`, such as: lab {options.verb} -- ./program")
    if command and not options.takes_command:
        raise UsageError(f"lab {options.verb} takes no command; `--` is for lab run and lab with")


# What the verbs do.


def _up(options, _command, owner=None):
    require_rights()
    _mention_stale()
    with store.locked():
        if store.load(options.name):
            raise UsageError(f"--name {options.name}: this lab exists; choose another name or remove it with "
                             f"`lab down --name {options.name}`")
        lab = _plan(options, store.free_subnet())
        lab.owner = owner
        network.require_free_names(lab)
        store.save(lab)
        if owner:
            guard.watch_over(lab)
        network.create(lab)
    if options.check:
        try:
            check(lab)
        except BaseException:
            _remove(lab)
            raise
    return lab


def _up_and_stay(options, command):
    _up(options, command)


def _plan(options, subnet):
    _check_rates(options)
    lab = make_plan(options.name, subnet, options.hosts, options.up_rate or options.rate,
                    options.down_rate or options.rate, dict(options.rate_of), options.mtu, options.burst,
                    options.buffer)
    if options.burst and options.burst < lab.packet_bytes:
        raise UsageError(f"--burst {options.burst}: a packet does not fit; allowed: {lab.packet_bytes} bytes or more "
                         f"with --mtu {options.mtu}")
    return lab


def _check_rates(options):
    if not options.rate and not (options.up_rate and options.down_rate):
        raise UsageError("--rate is needed (or both --up-rate and --down-rate); allowed: a rate such as 1gbit")
    for index, _ in options.rate_of:
        if index >= options.hosts:
            raise UsageError(f"--rate-of {index}=...: allowed: hosts 0 to {options.hosts - 1}")


def _run(options, command):
    require_rights()
    _mention_stale()
    return _run_in(store.find(options.name), options, command)


def _run_in(lab, options, command):
    launcher = options.launcher or options.mpi
    job = Job(command, options.np or len(lab.hosts), launcher, shlex.split(options.mpi_flags), options.timeout,
              options.launch_timeout, options.retries)
    before, begun = counters.read(lab), time.monotonic()
    code = run_command(lab, job)
    seconds = time.monotonic() - begun
    hosts = counters.difference(before, counters.read(lab))
    if not options.quiet:
        counters.print_table(hosts)
    if options.counters:
        counters.append_line(options.counters, {
            "command": command, "ranks": job.ranks, "launcher": launcher, "exit_code": code,
            "seconds": round(seconds, 6), "network": lab.describe(), "hosts": hosts})
    return code


def _with(options, command):
    options.name = options.name or f"with-{os.getpid()}"
    lab = _up(options, command, owner=store.this_process())
    try:
        return _run_in(lab, options, command)
    finally:
        _remove(lab)


def _remove(lab):
    """Remove the lab, and let no second signal stop it halfway."""
    ignore_signals()
    with store.locked():
        left = store.load(lab.name)
        if left:
            network.destroy(left)


def _down(options, _command):
    require_rights()
    if not options.all:
        _remove(store.find(options.name))
        return
    for lab in store.load_all():
        if lab.owner and not store.owner_is_dead(lab):
            print(f"lab: left {lab.name}: process {lab.owner['pid']} uses it; `lab down --name {lab.name}` removes it "
                  "all the same", file=sys.stderr)
        else:
            _remove(lab)


def _check(options, _command):
    require_rights()
    check(store.find(options.name))


def _status(options, _command):
    labs = store.load_all()
    if options.json:
        print(json.dumps([{**lab.describe(), "network": lab.network, "owner": lab.owner, "state": _state(lab),
                           "namespaces": lab.namespaces} for lab in labs], indent=1))
        return
    if not labs:
        print("no lab exists")
        return
    print(f"{'name':<16} {'hosts':>5} {'up':>9} {'down':>9}  {'network':<16} state")
    for lab in labs:
        up_bits, down_bits = lab.usual_rates()
        print(f"{lab.name:<16} {len(lab.hosts):>5} {format_rate(up_bits):>9} {format_rate(down_bits):>9}  "
              f"{lab.network:<16} {_state(lab)}")
        for host in lab.hosts:
            if (host.up_bits, host.down_bits) != (up_bits, down_bits):
                print(f"{'  host ' + str(host.index):<22} {format_rate(host.up_bits):>9} "
                      f"{format_rate(host.down_bits):>9}")


def _state(lab):
    if lab.owner is None:
        return "up"
    if store.owner_is_dead(lab):
        return f"stale: process {lab.owner['pid']} is gone; `lab down --all` removes it"
    return f"in use by process {lab.owner['pid']}"


def _mention_stale():
    for lab in store.load_all():
        if store.owner_is_dead(lab):
            print(f"lab: note: {lab.name} is {_state(lab)}", file=sys.stderr)


# What the flags mean.


def _parser():
    parser = argparse.ArgumentParser("lab", description=_DESCRIPTION, epilog=_EXAMPLES, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="up|run|check|status|down|with")
    _add_verb(verbs, "up", "make a lab that stays until `lab down`", _up_and_stay, [_name_of_new, _shape_flags])
    _add_verb(verbs, "run", "run a command on the hosts of a lab", _run, [_name_of_old, _run_flags], takes_command=True)
    _add_verb(verbs, "check", "measure known transfers over the links", _check, [_name_of_old])
    status = _add_verb(verbs, "status", "list the labs", _status, [])
    status.add_argument("--json", action="store_true", help="as JSON")
    down = _add_verb(verbs, "down", "remove a lab", _down, [_name_of_old])
    down.add_argument("--all", action="store_true", help="all labs but those a living `lab with` uses")
    _add_verb(verbs, "with", "make a lab, run a command in it, remove it whatever happens", _with,
              [_name_of_with, _shape_flags, _run_flags], takes_command=True)
    return parser


def _add_verb(verbs, name, help_text, action, flag_groups, takes_command=False):
    usage = f"lab {name} [flags] -- COMMAND..." if takes_command else None
    verb = verbs.add_parser(name, help=help_text, description=help_text, usage=usage, allow_abbrev=False)
    verb.set_defaults(action=action, takes_command=takes_command)
    for add_flags in flag_groups:
        add_flags(verb)
    return verb


def _name_of_new(verb):
    verb.add_argument("--name", type=_typed(_parse_name), default="default", help="the lab's name (default: default)")


def _name_of_with(verb):
    verb.add_argument("--name", type=_typed(_parse_name), help="the lab's name (default: with-PID)")


def _name_of_old(verb):
    verb.add_argument("--name", type=_typed(_parse_name), help="which lab (default: the only one there is)")


def _shape_flags(verb):
    verb.add_argument("--hosts", type=_typed(_whole("hosts", 1, MAX_HOSTS)), default=8, help="how many (default: 8)")
    verb.add_argument("--rate", type=_typed(parse_rate), help="of each link, both ways: 1gbit, 100mbit, 800kbit")
    verb.add_argument("--up-rate", type=_typed(parse_rate), metavar="RATE", help="from hosts to the switch")
    verb.add_argument("--down-rate", type=_typed(parse_rate), metavar="RATE", help="from the switch to hosts")
    verb.add_argument("--rate-of", type=_typed(_parse_rate_of), metavar="HOST=RATE", action="append", default=[],
                      help="another rate for one host, or HOST=UP/DOWN; may be repeated")
    verb.add_argument("--burst", type=_typed(parse_size), default=0, metavar="SIZE",
                      help="what a link lets pass at once (default: 192 us of its rate, at least two packets)")
    verb.add_argument("--buffer", type=_typed(parse_size), default=8 << 20, metavar="SIZE",
                      help="what a link queues before it drops (default: 8MB)")
    verb.add_argument("--mtu", type=_typed(_whole("bytes", 576, 9000)), default=1500, metavar="BYTES",
                      help="576 to 9000 (default: 1500)")
    verb.add_argument("--check", action="store_true", help="measure the links first, and fail if they are off")


def _run_flags(verb):
    verb.add_argument("--np", type=_typed(_whole("ranks", 1, 4096)), metavar="P", help="ranks (default: one a host)")
    how = verb.add_mutually_exclusive_group()
    how.add_argument("--mpi", choices=("openmpi", "mpich"), default="openmpi", help="which MPI (default: openmpi)")
    how.add_argument("--torch", dest="launcher", action="store_const", const="torch",
                     help="no MPI: MASTER_ADDR, RANK and so on as from torchrun; .py runs by /usr/bin/python3")
    how.add_argument("--each", dest="launcher", action="store_const", const="each",
                     help="no MPI: the plain command on each host, with RANK set")
    how.add_argument("--outside", dest="launcher", action="store_const", const="outside",
                     help="no MPI: the command once, on no host; `ip netns exec tulle-NAME-INDEX` takes it to one")
    verb.add_argument("--mpi-flags", default="", metavar="FLAGS", help="further flags of mpirun, as one argument")
    verb.add_argument("--timeout", type=_typed(_seconds), metavar="S", help="end the command then (code 124)")
    verb.add_argument("--launch-timeout", type=_typed(_seconds), default=30.0, metavar="S",
                      help="a launch whose ranks have not all started by then is tried again (default: 30)")
    verb.add_argument("--retries", type=_typed(_whole("retries", 0, 100)), default=2, metavar="N",
                      help="further tries of a launch that hangs (default: 2)")
    verb.add_argument("--counters", metavar="FILE", help="append the bytes per host to FILE as a line of JSON")
    verb.add_argument("--quiet", action="store_true", help="do not print the bytes per host")


def _typed(parse):
    """Return `parse` for argparse, which then names the flag before the message."""

    def convert(text):
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert


def _parse_name(text):
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,31}", text):
        raise ValueError(f"'{text}' is no name; allowed: up to 32 of a-z, 0-9 and -")
    return text


def _parse_rate_of(text):
    index, equals, rates = text.partition("=")
    if not equals or not index.isdigit():
        raise ValueError(f"'{text}'; allowed: HOST=RATE or HOST=UP/DOWN, such as 3=100mbit")
    up, _, down = rates.partition("/")
    return int(index), (parse_rate(up), parse_rate(down or up))


def _whole(what, least, most):
    def parse(text):
        with contextlib.suppress(ValueError):
            if least <= int(text) <= most:
                return int(text)
        raise ValueError(f"'{text}'; allowed: {least} to {most} {what}")

    return parse


def _seconds(text):
    with contextlib.suppress(ValueError):
        if float(text) > 0:
            return float(text)
    raise ValueError(f"'{text}'; allowed: a number of seconds above 0")
