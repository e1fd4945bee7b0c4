"""What a lab is: names, addresses and rates. Nothing here touches the machine."""

import json
import math
from dataclasses import asdict, dataclass, field

from .units import format_rate

INTERFACE = "eth0"
MAX_HOSTS = 250
ETHERNET_HEADER_BYTES = 14
IP_TCP_HEADER_BYTES = 52

# The bucket of a link holds what passes in BUCKET_SECONDS, and TCP hands over trains of packets that fill TRAIN_SHARE
# of it. Too large a bucket, and small messages pass unshaped: at 1 Gbit/s one of 128 kB lets 64 kB through in no time.
# Too small a one, and trains are short: each costs some 30 us of processor whatever its length, which is what bounds 8
# hosts at 1 Gbit/s on 2 cores (seen with 20 kB: a ring allreduce of 64 MB in 1.17 s with trains of 13 packets, 1.55 s
# with 6). The rest of the bucket is for timers that come late: without it a link was seen to lose a tenth of its rate.
BUCKET_SECONDS = 192e-6
TRAIN_SHARE = 0.83


@dataclass
class Host:
    """One host: a namespace, an address, and the rates of its link to the switch and back."""

    index: int
    namespace: str
    address: str
    up_bits: int
    down_bits: int


@dataclass
class Lab:
    """One lab: hosts around a switch. `inodes` identify the namespaces that were really made by it."""

    name: str
    subnet: int
    rate_bits: int
    mtu: int
    burst_bytes: int
    buffer_bytes: int
    hosts: list
    owner: dict = None
    inodes: dict = field(default_factory=dict)

    @property
    def switch(self):
        """The namespace that holds the bridge."""
        return f"tulle-{self.name}-switch"

    @property
    def network(self):
        """The subnet of the hosts in CIDR form."""
        return f"10.77.{self.subnet}.0/24"

    @property
    def namespaces(self):
        """All namespaces of the lab, the switch first."""
        return [self.switch] + [host.namespace for host in self.hosts]

    def bucket_bytes(self, bits):
        """Return the token bucket of a link of `bits` per second; two packets always fit."""
        if self.burst_bytes:
            return self.burst_bytes
        return max(math.ceil(bits / 8 * BUCKET_SECONDS), 2 * self.packet_bytes)

    def train_packets(self, bits):
        """Return how many packets TCP may hand over as one on a link of `bits` per second."""
        return max(1, int(min(TRAIN_SHARE * self.bucket_bytes(bits), 65536) // self.packet_bytes))

    @property
    def packet_bytes(self):
        """A full packet as the links count it."""
        return self.mtu + ETHERNET_HEADER_BYTES

    def wire_bytes(self, payload):
        """Return the bytes on the wire of `payload` bytes sent through one TCP connection."""
        segment = self.mtu - IP_TCP_HEADER_BYTES
        return payload + math.ceil(payload / segment) * (self.packet_bytes - segment)

    def describe(self):
        """Return what a result should record about this network."""
        odd = {h.index: [h.up_bits, h.down_bits] for h in self.hosts if (h.up_bits, h.down_bits) != self.usual_rates()}
        up_bits, down_bits = self.usual_rates()
        return {
            "name": self.name,
            "hosts": len(self.hosts),
            "rate": format_rate(self.rate_bits),
            "rate_bits": self.rate_bits,
            "up_bits": up_bits,
            "down_bits": down_bits,
            "odd_hosts": odd,
            "mtu": self.mtu,
            "burst_bytes": self.bucket_bytes(up_bits),
            "buffer_bytes": self.buffer_bytes,
        }

    def usual_rates(self):
        """Return the (up, down) rates that most hosts have."""
        pairs = [(host.up_bits, host.down_bits) for host in self.hosts]
        return max(pairs, key=pairs.count)

    def to_json(self):
        """Return the lab as a JSON text that `from_json` reads."""
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def from_json(text):
        """Return the lab that `to_json` wrote."""
        fields = json.loads(text)
        fields["hosts"] = [Host(**host) for host in fields["hosts"]]
        return Lab(**fields)


def make_plan(name, subnet, count, up_bits, down_bits, exceptions, mtu, burst_bytes, buffer_bytes):
    """Return a lab of `count` hosts; `exceptions` maps a host index to its own (up, down) rates."""
    hosts = []
    for index in range(count):
        up, down = exceptions.get(index, (up_bits, down_bits))
        hosts.append(Host(index, f"tulle-{name}-{index}", f"10.77.{subnet}.{index + 1}", up, down))
    return Lab(name, subnet, min(up_bits, down_bits), mtu, burst_bytes, buffer_bytes, hosts)


def place_ranks(ranks, hosts):
    """Return for each rank the host it runs on: neighbours together, no host with two more than another."""
    used = hosts[: min(ranks, len(hosts))]
    each, extra = divmod(ranks, len(used))
    placement = []
    for position, host in enumerate(used):
        placement += [host] * (each + (position < extra))
    return placement
