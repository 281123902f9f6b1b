# SPDX-License-Identifier: Apache-2.0
"""A system as a site's machines have it: Slurm and munge, and none of the packages that only building slurm-dp needs.

Made with debootstrap when it is needed for the first time, and kept in roots.CACHE for later runs; each test works on a copy.
"""
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess

from . import roots, versions
from .names import ClusterError

SUITE = "bookworm"
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "iproute2", "procps")


@contextlib.contextmanager
def copy(name):
    """→ the folder of a copy of our own, which goes when the caller is done. name: what a killed run left under it is cleared away."""
    clean = pristine(PACKAGES)
    root = os.path.join(roots.CACHE, f"{name}-root")
    shutil.rmtree(root, ignore_errors=True)
    try:
        _run("cp", "-a", "--reflink=auto", clean, root)
        shutil.copyfile("/etc/resolv.conf", os.path.join(root, "etc/resolv.conf"))
        with open(os.path.join(root, "etc/apt/apt.conf.d/90slurm-dp"), "w", encoding="utf-8") as settings:
            settings.write(roots.apt_settings())
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def pristine(packages):
    """→ the folder of a root with these packages of the release whose Slurm is tested, made where it is not there yet; nobody may change it."""
    slurm = versions.tested()
    # One root for each list of packages and, where its release moves on, each Slurm.
    what = " ".join((*packages, slurm.suite, slurm.number) if slurm.suite else packages)
    root = os.path.join(roots.CACHE, "clean-" + hashlib.sha256(what.encode()).hexdigest()[:12])
    os.makedirs(roots.CACHE, exist_ok=True)
    with open(roots.CACHE + "/clean.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(root):
            # Under its final name only when it is complete.
            shutil.rmtree(root + ".new", ignore_errors=True)
            _run("debootstrap", "--variant=minbase", "--include=" + ",".join(packages), slurm.suite or SUITE, root + ".new", roots.mirror())
            # The machines of the cluster mount their own there.
            open(os.path.join(root + ".new", "etc/hosts"), "a", encoding="ascii").close()
            # A copy is thrown away: no power cut matters, and dpkg need not wait for the disk.
            with open(os.path.join(root + ".new", "etc/dpkg/dpkg.cfg.d/slurm-dp"), "w", encoding="ascii") as settings:
                settings.write("force-unsafe-io\n")
            os.rename(root + ".new", root)
    return root


def _run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise ClusterError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done
