# SPDX-License-Identifier: Apache-2.0
"""A whole system with another Slurm in it, which a cluster's machines see as their disk and in which the checkout is built against it.

Made with debootstrap when it is needed for the first time, and kept for later runs and other checkouts; `rm -r` of CACHE removes it.
What packaging/dependencies lists for the version's groups is installed there, also what was added to the list since. Nothing is ever mounted in the
host's mount namespace.
"""
import os
import shutil
import signal
import socket
import subprocess
import time

from . import kernel, sharing
from .names import CHECKOUT, ClusterError, say

CACHE = "/var/cache/slurm-dp-cluster"
_SIGN_OF_LIFE = 10  # s
# From the host's apt, what decides whether and how a mirror is reached and believed.
_APT_SETTINGS = ("Acquire::http", "Acquire::Check-", "Acquire::Force", "Acquire::Retries")


def require(version):
    """→ the folder, complete."""
    root = os.path.join(CACHE, version.suite)
    os.makedirs(CACHE, exist_ok=True)
    lock = _lock(version)
    try:
        maker = _Maker(version, root + ".log")
        if not os.path.exists(root):
            maker.make(root)
        maker.install(root)
        _check_slurm(version, root)
    finally:
        lock.close()
    return root


def _check_slurm(version, root):
    if version.moves and not (found := _installed(root)["slurmd"]).startswith(version.number + "."):
        raise ClusterError(f"--slurm {version.number}: Debian {version.suite} has Slurm {found} by now; to take that, change "
                           "tests/cluster/localcluster/versions.py, and remove " + root)


def run(root, command, folder, shared):
    """Runs the command in the root as its root user, in the folder; what it started ends with it. → the exit code."""
    helper = _start(root, command, folder, shared)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(helper, 0)[1])
    except KeyboardInterrupt:
        _kill(helper)
        raise


def _start(root, command, folder, shared=(), log=None):
    """→ the number of a process that ends with the command's exit code. root: None for the host's, out of the host's sight."""
    helper = os.fork()
    if helper == 0:
        _helper(root, command, folder, shared, log)
    return helper


def _kill(helper):
    os.kill(helper, signal.SIGKILL)
    os.waitpid(helper, 0)


def _helper(root, command, folder, shared, log):
    """Process 1 of the command's PID namespace is the command: with it the kernel ends all that it started. Never returns."""
    code = 126
    try:
        kernel.die_with_parent(signal.SIGKILL)
        if log is not None:
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        trees = sharing.trees(shared)
        kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWPID)
        child = os.fork()
        if child == 0:
            kernel.die_with_parent(signal.SIGKILL)
            _enter(root, trees)
            os.chdir(folder)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)  # Python ignores them, and that would be inherited
            os.execvpe(command[0], command, _environment())
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to answer
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        code = code if code >= 0 else 128 - code
    except OSError as error:
        code = 127 if isinstance(error, FileNotFoundError) else 126
        os.write(2, f"cluster: {command[0]} cannot be run in {root or '/'}: {error}\n".encode())
    finally:
        os._exit(code)


def _enter(root, trees):
    kernel.mount("none", "/", flags=kernel.MS_SLAVE | kernel.MS_REC)
    if root is not None:
        devices = kernel.open_tree("/dev")
        kernel.change_root(root)
        kernel.move_mount(devices, "/dev")
        kernel.mount("sysfs", "/sys", "sysfs")
        kernel.mount("slurm-dp", "/tmp", "tmpfs", data="mode=1777")
    kernel.mount("proc", "/proc", "proc")
    for tree in trees:
        tree.place()


def _environment():
    kept = {name: value for name, value in os.environ.items() if name.lower() in ("http_proxy", "https_proxy", "no_proxy", "term")}
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", **kept}


def _lock(version):
    """One maker at a time. An abstract socket: it goes with its process and leaves no file."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    said = False
    while True:
        try:
            lock.bind(f"\0slurm-dp-root.{version.suite}")
            return lock
        except OSError:
            if not said:
                said = True
                say(f"Slurm {version.number}: waiting for another command that is preparing the same root")
        time.sleep(0.2)


class _Maker:
    def __init__(self, version, log):
        self._version = version
        self._log = log
        self._began = time.monotonic()

    def make(self, root):
        for program, package in (("debootstrap", "debootstrap"), ("apt-get", "apt")):
            if not shutil.which(program):
                raise ClusterError(f"{program} is not installed; run: apt-get install {package}")
        suite = self._version.suite
        new = root + ".new"
        # Under its final name only when it is complete; what an interrupted run left under this one is made anew.
        shutil.rmtree(new, ignore_errors=True)
        self._say(f"a root with Debian {suite} is made in {root}; this takes some minutes, and only once")
        debian = mirror()
        self._do(["debootstrap", "--variant=minbase", suite, new, debian])
        _write(os.path.join(new, "usr/sbin/policy-rc.d"), "#!/bin/sh\n# slurm-dp: no service starts here by itself\nexit 101\n", 0o755)
        _write(os.path.join(new, "etc/apt/apt.conf.d/90slurm-dp"), apt_settings() + 'APT::Install-Recommends "false";\n')
        # Nobody needs it whole after a power cut: it is made anew. Without this, dpkg spends most of its time waiting for the disk.
        _write(os.path.join(new, "etc/dpkg/dpkg.cfg.d/slurm-dp"), "force-unsafe-io\n")
        for file in ("etc/hosts", "etc/resolv.conf"):
            open(os.path.join(new, file), "a", encoding="utf-8").close()
        self.install(new)
        # Where the cluster's machines mount what is theirs.
        os.makedirs(os.path.join(new, "etc/slurm"), exist_ok=True)
        os.rename(new, root)
        self._say("the root is complete")

    def install(self, root):
        missing = [name for name in self._packages() if name not in _installed(root)]
        if not missing:
            return
        self._say(f"installing {len(missing)} packages and what they need")
        shutil.copyfile("/etc/resolv.conf", os.path.join(root, "etc/resolv.conf"))
        script = ("export DEBIAN_FRONTEND=noninteractive; dpkg --configure -a && apt-get -o Acquire::Retries=3 update && "
                  "apt-get -o Acquire::Retries=3 install -y \"$@\" && apt-get clean")
        self._do(["sh", "-c", script, "sh", *missing], root)

    def _packages(self):
        with open(os.path.join(CHECKOUT, "packaging/dependencies"), encoding="utf-8") as lines:
            words = [line.split() for line in lines if not line.startswith("#") and line.strip()]
        return [self._version.renamed.get(name, name) for group, name in words if group in self._version.groups]

    def _do(self, command, root=None):
        """Output goes to the log; a sign of life now and then."""
        with open(self._log, "ab") as log:
            helper = _start(root, command, "/", log=log.fileno())
        try:
            said = time.monotonic()
            while not (ended := os.waitpid(helper, os.WNOHANG))[0]:
                time.sleep(0.1)
                if time.monotonic() - said > _SIGN_OF_LIFE:
                    said = time.monotonic()
                    self._say("  … " + self._last_line())
        except KeyboardInterrupt:
            _kill(helper)
            raise
        if ended[1] != 0:
            raise ClusterError(f"the root for Slurm {self._version.number} cannot be made: {command[0]} failed; its last words:\n"
                               + "\n".join(self._tail()[-12:]) + f"\n(all of them: {self._log})")

    def _tail(self):
        with open(self._log, "rb") as log:
            log.seek(max(0, os.path.getsize(self._log) - 4000))
            return [line for line in log.read().decode(errors="replace").replace("\r", "\n").split("\n") if line.strip()]

    def _last_line(self):
        lines = self._tail()
        return "".join(c for c in lines[-1] if c.isprintable())[:110] if lines else ""

    def _say(self, text):
        say(f"Slurm {self._version.number}: {time.monotonic() - self._began:5.1f} s  {text}")


def mirror():
    """Where this machine gets its own Debian from."""
    with open("/etc/os-release", encoding="utf-8") as lines:
        release = dict(line.rstrip("\n").split("=", 1) for line in lines if "=" in line).get("VERSION_CODENAME", "").strip('"')
    done = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", f"Release: {release}", "Component: main"],
                          capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    mirrors = done.stdout.split()
    if not mirrors:
        raise ClusterError(f"apt names no mirror for {release or 'this system'} (apt-get indextargets): {done.stderr.strip() or 'nothing found'}; "
                           "run apt-get update, on Debian")
    return mirrors[0]


def apt_settings():
    """How this machine reaches and believes its mirror, for /etc/apt/apt.conf.d."""
    done = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    return "".join(line + "\n" for line in done.stdout.splitlines() if line.startswith(_APT_SETTINGS))


def _installed(root):
    done = subprocess.run(["dpkg-query", f"--admindir={root}/var/lib/dpkg", "-W", "-f", "${Package} ${Version} ${db:Status-Status}\n"],
                          capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return dict(line.split()[:2] for line in done.stdout.splitlines() if line.endswith(" installed"))


def _write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as out:
        out.write(text)
