# SPDX-License-Identifier: Apache-2.0
"""A machine that is emulated, and whose clock counts instructions (QEMU's -icount) while it has something to do: a millisecond is a million of
them. What a benchmark that keeps it busy finds there repeats within a percent or so, whatever else this machine does; what caches and memory
cost is not in it.

Its disk is made anew each time, of Debian's packages (kept in roots.CACHE) and this checkout; it has one CPU."""
import glob
import os
import shutil
import signal
import subprocess
import tempfile

from localcluster import kernel, roots
from localcluster.cleanroot import pristine
from localcluster.harness import BUILD, VERSION
from localcluster.names import CHECKOUT
from programs import DAEMON, built, require

EMULATED = "DP_BENCH_EMULATED"  # in the environment of a benchmark that runs there
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "iproute2", "procps", "python3", "kmod", "libprotobuf-lite32",
            "initramfs-tools", "linux-image-amd64")
MOUNTED = ("/dev", "/tmp", "/run")  # over what is on its disk
SPARE = 1 << 30  # bytes of the disk
MEMORY = "6G"
SAYS = "emulated: "  # what is not the benchmark's own

# Process 1. Cgroups and folders as a container has them; what it prints goes to the serial line.
INIT = f"""#!/bin/sh
export PATH=/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8 PYTHONUNBUFFERED=1 {EMULATED}=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts -o ptmxmode=666
for folder in /dev/shm /tmp /run; do mount -t tmpfs -o mode=1777 tmpfs $folder; done
ip link set lo up
for module in bridge veth overlay; do modprobe $module; done
stty -F /dev/console -onlcr 2>/dev/null
cd '{CHECKOUT}'
echo {SAYS}begins
tests/bench/run $(cat /benchmark) 2>&1
echo {SAYS}exit code $?
echo o > /proc/sysrq-trigger
sleep 60
"""


def run(words):
    """tests/bench/run with these words, there. → its exit code."""
    for program, package in (("qemu-system-x86_64", "qemu-system-x86"), ("debootstrap", "debootstrap"), ("mke2fs", "e2fsprogs")):
        if not shutil.which(program):
            raise SystemExit(f"tests/bench/run: --emulated needs {program}: packaging/install-dependencies emulated")
    if VERSION.suite:
        raise SystemExit("tests/bench/run: --emulated is for this machine's own Slurm; leave out DP_TEST_SLURM")
    if CHECKOUT.startswith(tuple(folder + "/" for folder in MOUNTED)):
        raise SystemExit(f"tests/bench/run: --emulated cannot run a checkout below {', '.join(MOUNTED)}, of which the emulated machine has its own")
    require(built("bench-nothing"), os.path.join(BUILD, "lib/spank_dp.so"), DAEMON)
    root = pristine(PACKAGES)
    _clear_away()
    with tempfile.TemporaryDirectory(dir=roots.CACHE, prefix=f"emulated-{os.getpid()}-") as folder:
        disk = os.path.join(folder, "disk")
        _make_disk(root, disk, os.path.join(folder, "root"), words)
        return _boot(root, disk)


def _clear_away():
    """What runs left that were killed."""
    for folder in glob.glob(os.path.join(roots.CACHE, "emulated-*")):
        if not os.path.exists("/proc/" + os.path.basename(folder).split("-")[1]):
            shutil.rmtree(folder, ignore_errors=True)


def _make_disk(root, disk, copy, words):
    _do("cp", "-a", "--reflink=auto", root, copy)
    with open(os.path.join(copy, "benchmark"), "w", encoding="ascii") as text:
        text.write(" ".join(words))
    with open(os.open(os.path.join(copy, "emulated-init"), os.O_WRONLY | os.O_CREAT, 0o755), "w", encoding="ascii") as text:
        text.write(INIT)
    there = copy + CHECKOUT
    os.makedirs(there)
    for folder in ("tests", "spank", "packaging"):
        shutil.copytree(os.path.join(CHECKOUT, folder), os.path.join(there, folder), symlinks=True)
    for file in (built("bench-nothing"), os.path.join(BUILD, "lib/spank_dp.so"), DAEMON):
        os.makedirs(os.path.dirname(copy + file), exist_ok=True)
        shutil.copy2(file, copy + file)
    size = int(_do("du", "-sB1", copy).split()[0])
    _do("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", copy, disk, str((size * 5 // 4 + SPARE) >> 10) + "k")
    shutil.rmtree(copy)


def _boot(root, disk):
    boot = os.path.join(root, "boot")
    image, initrd = (os.path.join(boot, next(file for file in os.listdir(boot) if file.startswith(kind))) for kind in ("vmlinuz-", "initrd.img-"))
    machine = subprocess.Popen(
        ["qemu-system-x86_64", "-M", "q35", "-cpu", "Nehalem", "-smp", "1", "-m", MEMORY, "-accel", "tcg,tb-size=512", "-icount", "shift=0,sleep=on",
         "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-drive", f"file={disk},format=raw,if=virtio,cache=unsafe",
         "-kernel", image, "-initrd", initrd, "-append", "console=ttyS0 root=/dev/vda rw init=/emulated-init mitigations=off quiet panic=1"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace",
        preexec_fn=lambda: kernel.die_with_parent(signal.SIGKILL))
    code, begun = None, False
    try:
        last = "none"
        for line in machine.stdout:
            if line.startswith(SAYS):
                begun = True
                code = int(line.split()[-1]) if "exit code" in line else None
            elif begun and code is None:
                print(line, end="", flush=True)
            elif not begun and line.strip():
                last = line
    finally:
        machine.kill()
        machine.wait()
    if code is None:
        raise SystemExit("tests/bench/run: the emulated machine ended before its benchmark did" + ("" if begun else f"; its last words: {last}"))
    return code


def _do(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise SystemExit(f"tests/bench/run: {' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout
