# SPDX-License-Identifier: Apache-2.0
"""Runs a command inside a machine of the cluster as one of its users, as if it had been started there: terminal, signals, exit code."""
import os
import pwd
import signal
import stat

from . import kernel, sharing
from .names import USERS, ClusterError

_NAMESPACES = (kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS | kernel.CLONE_NEWNET | kernel.CLONE_NEWCGROUP | kernel.CLONE_NEWIPC)
_SENT_BY_KERNEL = 0x80  # si_code SI_KERNEL: typed at the terminal (Ctrl-C), so the whole foreground group got it
_FORWARDED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
              signal.SIGWINCH, signal.SIGCONT}


def share_folder(path, pids):
    """Makes the host's folder visible at its path in every machine where it is not. Mount namespaces are entered in a child."""
    if not sharing.sharable(path):
        return
    for name, pid in pids.items():
        if not os.path.isdir(f"/proc/{pid}/root/proc") or sharing.visible(path, f"/proc/{pid}/root"):
            continue
        trees = sharing.trees([path])
        child = os.fork()
        if child == 0:
            try:
                kernel.setns(os.pidfd_open(pid), kernel.CLONE_NEWNS, name)
                for tree in trees:
                    tree.place()
                os._exit(0)
            except OSError as error:
                os.write(2, f"cluster: {path} cannot be shown on {name}: {error.strerror}\n".encode())
            os._exit(1)
        code = os.waitpid(child, 0)[1]
        for tree in trees:
            tree.close()
        if code != 0:
            raise ClusterError(f"the folder {path} cannot be shown in every machine; run this from another folder")


def run(groups, machine, pid, user, command, folder):
    """Returns the exit code: the command's, or 128 + the signal that ended it. folder: where to run, None for the user's home."""
    own_group = not os.isatty(0)
    forwarded = _FORWARDED - ({signal.SIGCONT, signal.SIGWINCH} if not own_group else set())
    waited = forwarded | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    # Only children are put into the PID namespace by this; this process stays where it is.
    process_one = os.pidfd_open(pid)
    kernel.setns(process_one, kernel.CLONE_NEWPID, machine)
    child = os.fork()
    if child == 0:
        _child(groups, machine, process_one, user, command, folder, own_group, before)
    while True:
        got = signal.sigwaitinfo(waited)
        if got.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        elif own_group or got.si_code != _SENT_BY_KERNEL:
            os.kill(child, got.si_signo)


def _child(groups, machine, process_one, user, command, folder, own_group, mask):
    code = 126
    try:
        if own_group:
            os.setsid()  # then a signal to our group does not reach the command twice
        groups.enter(machine)
        kernel.setns(process_one, _NAMESPACES, machine)
        try:
            account = pwd.getpwnam(user)
        except KeyError:
            raise ClusterError(f"the cluster has no user {user}; it has root, {', '.join(USERS)}") from None
        environment = _environment(account)
        os.initgroups(user, account.pw_gid)
        os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
        os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
        os.umask(0o022)
        try:
            os.chdir(folder or account.pw_dir)
        except OSError as error:
            raise ClusterError(f"{user} cannot work in {folder or account.pw_dir} on {machine}: {error.strerror}") from None
        # If this front end is killed with SIGKILL, the command goes too. After the change of user, which clears it.
        kernel.die_with_parent(signal.SIGKILL)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)  # Python ignores them, and that would be inherited
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvpe(command[0], command, environment)
    except ClusterError as error:
        os.write(2, f"cluster: {error}\n".encode())
    except OSError as error:
        code = 127 if isinstance(error, FileNotFoundError) else 126
        os.write(2, f"cluster: {command[0]} cannot be run on {machine} as {user}: {error.strerror}\n".encode())
    finally:
        os._exit(code)


def _environment(account):
    """The caller's, less what belongs to him or to his own /tmp and not to the cluster's user."""
    dropped = ("SUDO_", "XDG_", "DBUS_", "SSH_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(dropped) and k not in ("TMPDIR", "DP_CLUSTER", "MAIL")}
    environment.update(HOME=account.pw_dir, USER=account.pw_name, LOGNAME=account.pw_name, SHELL=account.pw_shell)
    folders = [f for f in environment.get("PATH", "").split(":") if f.startswith("/") and (account.pw_uid == 0 or _enterable(f))]
    folders += [f for f in ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin") if f not in folders]
    environment["PATH"] = ":".join(folders)
    return environment


def _enterable(path):
    while True:
        try:
            if not os.stat(path).st_mode & stat.S_IXOTH:
                return False
        except OSError:
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)
