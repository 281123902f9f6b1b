# SPDX-License-Identifier: Apache-2.0
"""The cluster's network: a bridge in the switch's namespace, a veth to each machine; cutting it and healing it.

A cut is silent, as a switch that died is: no error, no lost carrier, packets just do not arrive.
"""
import subprocess

from .names import ClusterError, HEAD

# A link address that no machine has: what is sent there is dropped by everybody.
_NOWHERE = "02:00:00:00:00:01"


def _batch(pid, tool, lines, what):
    """Runs ip or bridge once with many lines, in the network namespace of that process (nsenter --net: `ip netns exec` would mount
    /sys anew and lose the cgroups)."""
    done = subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", tool, "-batch", "-"], input="\n".join(lines) + "\n", text=True,
                          capture_output=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"{what}: {tool} says: {(done.stderr or done.stdout).strip()}")


def wire(cluster, switch, machines):
    """machines: {name: pid}. Makes the bridge and every machine's eth0."""
    lines = ["link add br0 type bridge forward_delay 0", "link set br0 up"]
    for name, pid in machines.items():
        lines += [f"link add {name} type veth peer name eth0 address {cluster.link_address(name)} netns {pid}",
                  f"link set {name} master br0 up"]
    _batch(switch, "ip", lines, f"the network of cluster {cluster.name}")
    for name, pid in machines.items():
        _batch(pid, "ip", ["link set lo up", f"addr add {cluster.address(name)}/24 dev eth0", "link set eth0 up"],
               f"the network of {name}")


def attach(cluster, switch, name, pid):
    """Gives a machine that was started again its link; the kernel took the old one with the old namespace."""
    subprocess.run(["nsenter", f"--net=/proc/{switch}/ns/net", "ip", "link", "del", name], stderr=subprocess.DEVNULL, check=False)
    _batch(switch, "ip", [f"link add {name} type veth peer name eth0 address {cluster.link_address(name)} netns {pid}",
                          f"link set {name} master br0 up"], f"the network of {name}")
    _batch(pid, "ip", ["link set lo up", f"addr add {cluster.address(name)}/24 dev eth0", "link set eth0 up"], f"the network of {name}")


def cut(switch, name):
    """Nothing passes the switch's port any more, in either direction; the machine's own link stays up."""
    _batch(switch, "bridge", [f"link set dev {name} state 0"], f"cutting {name} off")


def cut_between(cluster, one, two, pids):
    """Each of the two sends what is meant for the other to nobody; everything else passes."""
    for here, there in ((one, two), (two, one)):
        _batch(pids[here], "ip", [f"neigh replace {cluster.address(there)} lladdr {_NOWHERE} dev eth0 nud permanent"],
               f"cutting {here} off {there}")


def heal(cluster, switch, name, pids):
    """Undoes every cut of that machine."""
    _batch(switch, "bridge", [f"link set dev {name} state 3"], f"healing {name}")
    for other in pids:
        if other == name:
            continue
        for here, there in ((name, other), (other, name)):
            # Replaced by an ordinary entry with the right address: deleting one that is not there would be an error.
            _batch(pids[here], "ip", [f"neigh replace {cluster.address(there)} lladdr {cluster.link_address(there)} dev eth0 nud stale"],
                   f"healing the way from {here} to {there}")


def state(switch, machines):
    """{name: "cut" or "connected"} as the switch's ports are."""
    done = subprocess.run(["nsenter", f"--net=/proc/{switch}/ns/net", "bridge", "link", "show"], capture_output=True, text=True, check=True)
    cut_off = {line.split()[1].split("@")[0].rstrip(":") for line in done.stdout.splitlines() if "state disabled" in line}
    return {name: "cut" if name in cut_off else "connected" for name in machines if name != HEAD}
