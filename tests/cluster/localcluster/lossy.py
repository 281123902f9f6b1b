# SPDX-License-Identifier: Apache-2.0
"""A bad line: every IPv4 packet that the network namespace of this process sends is late, and some are lost. Run by the tests in that
of a node: python3 lossy.py DELAY_MS LOSS_PERCENT, until it is told to end. The kernel's netem would do, but many kernels lack it; here what
goes to the cluster's network is routed into a TUN device, and this program sends it on when its time has come."""
import fcntl
import heapq
import ipaddress
import json
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import time

INTERFACE, DEVICE = "eth0", "late0"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454ca, 0x0001, 0x1000  # linux/if_tun.h


def own_address():
    shown = subprocess.run(["ip", "-j", "-4", "addr", "show", "dev", INTERFACE], capture_output=True, check=True).stdout
    address = json.loads(shown)[0]["addr_info"][0]
    return ipaddress.ip_interface(f"{address['local']}/{address['prefixlen']}")


def open_tun():
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    return tun


def main(delay, loss):
    here = own_address()
    tun = open_tun()  # it goes with this process, and the routes with it
    out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, INTERFACE.encode())
    lines = [f"link set dev {DEVICE} up mtu 1500"]
    # The halves win over the whole, which stays for what is bound to the interface.
    lines += [f"route add {half} dev {DEVICE} src {here.ip}" for half in here.network.subnets()]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)
    for name in ("all", INTERFACE):  # answers come in where nothing seems to go out
        with open(f"/proc/sys/net/ipv4/conf/{name}/rp_filter", "w", encoding="ascii") as setting:
            setting.write("0")
    print("ready", flush=True)
    late = []  # (when it may go, the packet)
    while True:
        wait = max(0.0, late[0][0] - time.monotonic()) if late else None
        if select.select([tun], [], [], wait)[0]:
            packet = os.read(tun, 65536)
            if packet[0] >> 4 == 4 and random.random() >= loss:
                heapq.heappush(late, (time.monotonic() + delay, packet))
        while late and late[0][0] <= time.monotonic():
            packet = heapq.heappop(late)[1]
            try:
                out.sendto(packet, (socket.inet_ntoa(packet[16:20]), 0))
            except OSError:
                pass  # nobody has that address: lost, too


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main(float(sys.argv[1]) / 1000, float(sys.argv[2]) / 100)
