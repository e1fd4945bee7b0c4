"""One end of a known transfer: check_peer.py send|receive ADDRESS PORT SIZES (a JSON list of message lengths)."""

import json
import socket
import struct
import sys
import time

_PAUSE_SECONDS = 0.005  # the buckets fill between messages
_CHUNK = bytearray(1 << 20)


def receive(address, port, sizes):
    """Take the messages and print the one-way seconds of each as JSON."""
    with socket.create_server((address, port)) as server:
        print("ready", flush=True)
        connection, _ = server.accept()
    seconds = []
    with connection:
        for size in sizes:
            sent_at, = struct.unpack("d", _take(connection, 8))
            left = size - 8
            while left:
                left -= _some(connection, left)
            seconds.append(time.monotonic() - sent_at)
            connection.sendall(b"k")
    print(json.dumps(seconds))


def _some(connection, most):
    count = connection.recv_into(_CHUNK, min(most, len(_CHUNK)))
    if not count:
        raise ConnectionError("the sender is gone")
    return count


def _take(connection, size):
    data = b""
    while len(data) < size:
        data += connection.recv(size - len(data)) or _gone()
    return data


def _gone():
    raise ConnectionError("the sender is gone")


def send(address, port, sizes):
    """Send messages that begin with the time they were sent at, each after the one before has arrived."""
    with socket.create_connection((address, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for size in sizes:
            message = bytearray(b"x" * size)
            time.sleep(_PAUSE_SECONDS)
            struct.pack_into("d", message, 0, time.monotonic())
            connection.sendall(message)
            _take(connection, 1)


if __name__ == "__main__":
    role, where, at, lengths = sys.argv[1:]
    {"send": send, "receive": receive}[role](where, int(at), json.loads(lengths))
