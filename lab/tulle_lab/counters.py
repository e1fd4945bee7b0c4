"""Bytes that really passed: what the links' shapers counted, headers of every packet included."""

import json
import sys

from .plan import INTERFACE
from .process import system

_FIELDS = ("sent_bytes", "sent_packets", "received_bytes", "received_packets", "dropped_packets")


def read(lab):
    """Return for each host what its link has carried since it was made."""
    down = _shapers(lab.switch)
    readings = []
    for host in lab.hosts:
        sent = _shapers(host.namespace)[INTERFACE]
        received = down[f"p{host.index}"]
        readings.append({
            "sent_bytes": sent["bytes"],
            "sent_packets": sent["packets"],
            "received_bytes": received["bytes"],
            "received_packets": received["packets"],
            "dropped_packets": sent["drops"] + received["drops"],
        })
    return readings


def _shapers(namespace):
    rows = json.loads(system(["tc", "-n", namespace, "-s", "-j", "qdisc", "show"]))
    return {row["dev"]: row for row in rows if row["kind"] == "tbf"}


def difference(before, after):
    """Return per host what passed between two readings."""
    return [{"host": index, **{field: new[field] - old[field] for field in _FIELDS}}
            for index, (old, new) in enumerate(zip(before, after))]


def print_table(hosts, stream=None):
    """Print one line per host, and the sum."""
    rows = [(str(row["host"]), row) for row in hosts]
    rows.append(("all", {field: sum(row[field] for row in hosts) for field in _FIELDS}))
    print(f"{'host':>5} {'sent bytes':>15} {'received bytes':>15} {'dropped':>8}", file=stream or sys.stderr)
    for name, row in rows:
        print(f"{name:>5} {row['sent_bytes']:>15,} {row['received_bytes']:>15,} {row['dropped_packets']:>8,}",
              file=stream or sys.stderr)


def append_line(path, record):
    """Append `record` as one line of JSON."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
