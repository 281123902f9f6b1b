# SPDX-License-Identifier: Apache-2.0
"""What a cluster is called, where its state lies, and who may work on it at a time."""
import ipaddress
import json
import os
import re
import shutil
import socket
import sys
import time
import zlib

BASE = "/var/lib/slurm-dp-cluster"
HEAD = "head"
SWITCH = "switch"  # a network namespace with the bridge and no services
USERS = {"alice": 1001, "bob": 1002}  # ordinary users, known inside the cluster only
CHECKOUT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))


class ClusterError(Exception):
    """What went wrong, where, and what to do; printed as one message."""


def say(text):
    print(text, flush=True)


class Cluster:
    """Names and paths of one cluster, and the record that `up` keeps of it."""

    def __init__(self, name):
        # The name is part of paths, of a cgroup's name and of Slurm's ClusterName.
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", name):
            raise ClusterError(f"DP_CLUSTER={name}: a cluster's name is at most 31 of a-z, 0-9 and -, and does not begin with -")
        self.name = name
        self.state = os.path.join(BASE, name)
        self.logs = os.path.join(self.state, "log")
        self.home = os.path.join(self.state, "home")
        self.etc = os.path.join(self.state, "etc")
        self._record_path = os.path.join(self.state, "cluster.json")
        self._lock = None
        # Every cluster has a bridge of its own in a namespace of its own, so subnets could not collide;
        # a subnet of its own says in logs whose address one sees.
        self.subnet = f"10.77.{zlib.crc32(name.encode()) % 254 + 1}"

    def log(self, name):
        return os.path.join(self.logs, name)

    def address(self, machine):
        return f"{self.subnet}.{1 if machine == HEAD else 10 + int(machine[4:])}"

    def link_address(self, machine):
        """The machine's Ethernet address, made from its IP address so that it is known without asking."""
        return "02:77:" + ":".join(f"{byte:02x}" for byte in ipaddress.IPv4Address(self.address(machine)).packed)

    def exists(self):
        return os.path.exists(self.state)

    def save(self, record):
        temporary = self._record_path + ".new"
        with open(temporary, "w", encoding="utf-8") as out:
            json.dump(record, out, indent=1)
        os.rename(temporary, self._record_path)

    def load(self):
        """The record of a cluster that is up; ClusterError where there is none."""
        try:
            with open(self._record_path, encoding="utf-8") as source:
                record = json.load(source)
        except FileNotFoundError:
            record = {}
        if not record.get("complete"):
            half = " (an `up` is at work or was interrupted)" if self.exists() else ""
            raise ClusterError(f"no cluster {self.name} is up{half}; start one with: {this_command(self.name)} up")
        return record

    def lock(self):
        """One up, down, kill or heal at a time. An abstract socket: it goes with its process and leaves no file."""
        self._lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        end = time.monotonic() + 3  # what was killed a moment ago may still be ending
        while True:
            try:
                self._lock.bind(f"\0slurm-dp-cluster.{self.name}")
                return
            except OSError:
                if time.monotonic() > end:
                    raise ClusterError(f"another command is changing cluster {self.name} right now; wait until it has ended, "
                                       "or work on a cluster of another name: DP_CLUSTER=NAME") from None
            time.sleep(0.02)

    def remove_state(self):
        shutil.rmtree(self.state, ignore_errors=True)
        try:
            os.rmdir(BASE)
        except OSError:
            pass  # another cluster's state is in it, or it was never made


def this_command(name):
    """How the user calls this script from where he is, for messages."""
    path = os.path.join(CHECKOUT, "tests/cluster/cluster")
    relative = os.path.relpath(path)
    prefix = "" if name == "dp" else f"DP_CLUSTER={name} "
    return prefix + (path if relative.startswith("..") else relative)


def warn(text):
    print(f"cluster: {text}", file=sys.stderr, flush=True)
