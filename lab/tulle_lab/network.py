"""Making and removing the namespaces, the bridge, the links and their shaping.

Everything lives in namespaces of the lab, the bridge too, so the machine's own network is left as it was. A host's link
is a veth pair: `eth0` in the host, shaped by its up rate, and `p<index>` on the bridge, shaped by its down rate.
"""

import contextlib
import os
import shutil

from . import store
from .errors import LabError
from .plan import INTERFACE
from .process import end_processes_in, system

_NETNS = "/run/netns"
_NETNS_FILES = "/etc/netns"
_BEING_MADE = 0

# Reno without a restart after idle times: what a tuned cluster does, and 20 % nearer to the limit of the link than BBR,
# whose own pacing works against the bucket. The bound on what one connection queues in its own host stands for the byte
# queue limits of a real card: without it a control message waits behind megabytes.
_HOST_SYSCTLS = {
    "net/ipv4/tcp_congestion_control": "reno",
    "net/ipv4/tcp_slow_start_after_idle": 0,
    "net/ipv4/tcp_limit_output_bytes": 131072,
    "net/ipv4/tcp_no_metrics_save": 1,
}

# A switch has no firewall.
_SWITCH_SYSCTLS = {
    "net/bridge/bridge-nf-call-iptables": 0,
    "net/bridge/bridge-nf-call-ip6tables": 0,
    "net/bridge/bridge-nf-call-arptables": 0,
}


def create(lab):
    """Make all of the lab; on failure nothing of it remains. REQUIRES: the lock, and the lab saved."""
    try:
        for namespace in lab.namespaces:
            _add_namespace(lab, namespace)
        _make_switch(lab)
        for host in lab.hosts:
            _make_host(lab, host)
    except BaseException:
        destroy(lab)
        raise


def require_free_names(lab):
    """Raise if a namespace of one of the lab's names exists: it is not ours."""
    for namespace in lab.namespaces:
        if os.path.exists(os.path.join(_NETNS, namespace)):
            raise LabError(f"namespace {namespace} exists and was not made by a lab known here; choose another --name")


def _add_namespace(lab, namespace):
    lab.inodes[namespace] = _BEING_MADE
    store.save(lab)
    try:
        system(["ip", "netns", "add", namespace])
    except LabError:
        del lab.inodes[namespace]
        raise
    lab.inodes[namespace] = _inode(namespace)
    store.save(lab)


def _inode(namespace):
    try:
        return os.stat(os.path.join(_NETNS, namespace)).st_ino
    except FileNotFoundError:
        return None


def _make_switch(lab):
    lines = [f"link add br0 mtu {lab.mtu} type bridge stp_state 0 mcast_snooping 0",
             "link set br0 addrgenmode none", "link set br0 up"]
    for host in lab.hosts:
        port = f"p{host.index}"
        lines += [f"link add {port} mtu {lab.mtu} type veth peer name {INTERFACE} mtu {lab.mtu} netns {host.namespace}",
                  f"link set {port} addrgenmode none", f"link set {port} master br0 up"]
    _batch("ip", lab.switch, lines)
    _set_sysctls(lab.switch, _SWITCH_SYSCTLS)
    _batch("tc", lab.switch, [_shape(lab, f"p{host.index}", host.down_bits) for host in lab.hosts])


def _make_host(lab, host):
    _batch("ip", host.namespace, [
        "link set lo up",
        f"link set {INTERFACE} addrgenmode none gso_max_segs {lab.train_packets(host.up_bits)}",
        f"addr add {host.address}/24 dev {INTERFACE}",
        f"link set {INTERFACE} up",
    ])
    _batch("tc", host.namespace, [_shape(lab, INTERFACE, host.up_bits)])
    _write_hosts_file(lab, host)
    _set_sysctls(host.namespace, _HOST_SYSCTLS)


def _set_sysctls(namespace, settings):
    """Set what this kernel has of `settings`."""
    script = "".join(f"[ ! -e /proc/sys/{key} ] || echo {value} > /proc/sys/{key} || exit\n"
                     for key, value in settings.items())
    system(["ip", "netns", "exec", namespace, "sh", "-c", script])


def _shape(lab, interface, bits):
    return (f"qdisc add dev {interface} root tbf rate {bits}bit burst {lab.bucket_bytes(bits)} "
            f"limit {lab.buffer_bytes}")


def _batch(tool, namespace, lines):
    system([tool, "-n", namespace, "-batch", "-"], "\n".join(lines) + "\n")


def _write_hosts_file(lab, host):
    directory = os.path.join(_NETNS_FILES, host.namespace)
    os.makedirs(directory, exist_ok=True)
    lines = ["127.0.0.1 localhost"] + [f"{peer.address} {peer.namespace}" for peer in lab.hosts]
    with open(os.path.join(directory, "hosts"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def destroy(lab):
    """End the lab's processes and remove its namespaces, files and record; do it again and nothing happens."""
    ours = {name: _inode(name) for name, inode in lab.inodes.items() if inode in (_BEING_MADE, _inode(name))}
    ours = {name: inode for name, inode in ours.items() if inode}
    end_processes_in(set(ours.values()))
    for namespace in reversed(lab.namespaces):
        if namespace in ours:
            system(["ip", "netns", "delete", namespace])
        if namespace in ours or _inode(namespace) is None:
            shutil.rmtree(os.path.join(_NETNS_FILES, namespace), ignore_errors=True)
    with contextlib.suppress(OSError):
        os.rmdir(_NETNS_FILES)
    store.forget(lab)
