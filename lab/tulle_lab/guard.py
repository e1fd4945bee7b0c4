"""A lab that ends with its owner, even when the owner is killed outright.

A small process apart holds the reading end of a pipe whose writing end only the owner has. When the owner ends, in
whatever way, the kernel closes the pipe and the guard removes the lab if it is still there.
"""

import os

from . import network, store
from .process import ignore_signals


def watch_over(lab):
    """Start the guard of `lab` for the life of this process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(reader)
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.close(writer)
    _guard(lab, reader)


def _guard(lab, reader):
    ignore_signals()
    _leave_terminal(reader)
    try:
        os.read(reader, 1)
        with store.locked():
            left = store.load(lab.name)
            if left and left.owner == lab.owner:
                network.destroy(left)
    finally:
        os._exit(0)


def _leave_terminal(keep):
    """Hold no file of the owner open: whoever reads its output would wait for the guard, too."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    for descriptor in range(3, 256):
        if descriptor != keep:
            try:
                os.close(descriptor)
            except OSError:
                pass
