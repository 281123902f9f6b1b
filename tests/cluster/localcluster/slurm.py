# SPDX-License-Identifier: Apache-2.0
"""Slurm and munge of the cluster: what is written into its /etc, how the services start, and how one sees that they run."""
import os
import re
import signal
import subprocess
import time

from . import accounting, enter, kernel
from .machine import GPUS, RDUS, TILES
from .names import HEAD, USERS, ClusterError

COUNTED = 8  # of a gres without device files, of which Slurm gives numbers and no indices
CPUS = 16  # claimed by each node, however many this machine has


def node_names(count):
    return [f"node{n:02d}" for n in range(1, count + 1)]


def write_etc(cluster, nodes, plugstack, groups, root=None, conf=(), accounts=False):
    """Everything that the machines mount below /etc. root: the folder that is their disk, None for this machine's own; conf: further
    lines of slurm.conf, KEY=VALUE, and of topology.conf, SwitchName=…; accounts: whether Slurm keeps accounts of jobs and steps."""
    slurm = os.path.join(cluster.etc, "slurm")
    os.makedirs(slurm)
    os.makedirs(cluster.logs)
    for folder in ("ctld", "munge"):
        os.mkdir(os.path.join(cluster.state, folder), 0o700)
    os.mkdir(os.path.join(cluster.state, "spool"))
    _accounts(cluster, root or "/")

    hosts = ["127.0.0.1 localhost", f"{cluster.address(HEAD)} {HEAD}"] + [f"{cluster.address(n)} {n}" for n in nodes]
    _write(os.path.join(cluster.etc, "hosts"), "\n".join(hosts) + "\n")
    if accounts:
        _write(os.path.join(slurm, "slurmdbd.conf"), accounting.slurmdbd_conf(cluster), 0o600)
        conf = [*accounting.CONF, *conf]
    switches = [line for line in conf if line.startswith("SwitchName=")]
    _write(os.path.join(slurm, "slurm.conf"), _with(_slurm_conf(cluster, nodes), [line for line in conf if line not in switches]))
    if switches:
        _write(os.path.join(slurm, "topology.conf"), "\n".join(switches) + "\n")
    # Devices alone are constrained: the claimed CPUs and memory are not all there.
    _write(os.path.join(slurm, "cgroup.conf"),
           f"CgroupPlugin=cgroup/{groups.version}\nCgroupMountpoint=/sys/fs/cgroup\nConstrainDevices=yes\nConstrainCores=no\nConstrainRAMSpace=no\n"
           + ("IgnoreSystemd=yes\n" if groups.version == "v2" else ""))
    _write(os.path.join(slurm, "gres.conf"),
           "AutoDetect=off\n" + "".join(f"Name={kind} File=/dev/{kind}[0-{count - 1}]\n"
                                        for kind, count in (("gpu", GPUS), ("rdu", RDUS), ("tile", TILES)))
           + f"Name=counted Count={COUNTED}\n")
    _write(os.path.join(slurm, "plugstack.conf"), plugstack)
    _write(os.path.join(cluster.state, "munge", "munge.key"), os.urandom(128), 0o600)


def _slurm_conf(cluster, nodes):
    # KillOnBadExit (0) and KillWait (30) are written down because the tests of failures rely on Slurm's defaults.
    # bf_interval=1: only the backfill scheduler starts heterogeneous jobs, and by default it looks every 30 s.
    # ReturnToService=2: a node that was cut or killed for long comes back by itself; a drained one, which a test must see, does not.
    return f"""ClusterName={cluster.name}
SlurmctldHost={HEAD}
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
MpiDefault=none
KillOnBadExit=0
KillWait=30
ReturnToService=2
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
SchedulerParameters=bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu,rdu,tile,counted
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
MailProg=/bin/true
StateSaveLocation={cluster.state}/ctld
SlurmdSpoolDir={cluster.state}/spool/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldDebug=info
SlurmctldLogFile={cluster.log('slurmctld.log')}
SlurmdDebug=info
SlurmdLogFile={cluster.log('slurmd-%n.log')}
SlurmdParameters=config_overrides
NodeName={','.join(nodes)} CPUs={CPUS} Boards=1 SocketsPerBoard=1 CoresPerSocket={CPUS} ThreadsPerCore=1 RealMemory=64000 Gres=gpu:{GPUS},rdu:{RDUS},tile:{TILES},counted:{COUNTED} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=YES State=UP
"""


def _with(text, conf):
    """The lines in place of those for the same keys."""
    keys = {line.split("=", 1)[0].lower() for line in conf}
    kept = [line for line in text.splitlines() if line.split("=", 1)[0].lower() not in keys]
    return "\n".join([*kept, *conf]) + "\n"


def _accounts(cluster, root):
    """The system's accounts and the cluster's own users, in files that only the cluster's machines see; the users' homes are shared."""
    ids = {str(uid) for uid in USERS.values()}
    lines = {"passwd": [f"{u}:x:{i}:{i}:{u} of the local cluster:/home/{u}:/bin/bash" for u, i in USERS.items()],
             "group": [f"{u}:x:{i}:" for u, i in USERS.items()],
             "shadow": [f"{u}:!:19000:0:99999:7:::" for u in USERS]}
    for file, own in lines.items():
        with open(os.path.join(root, "etc", file), encoding="utf-8") as source:
            # A real user with such a name or number would be a second one inside.
            kept = [line.rstrip("\n") for line in source
                    if line.split(":")[0] not in USERS and (file == "shadow" or (line.split(":") + ["", ""])[2].strip() not in ids)]
        _write(os.path.join(cluster.etc, file), "\n".join(kept + own) + "\n", 0o600 if file == "shadow" else 0o644)
    os.mkdir(cluster.home)
    for user, number in USERS.items():
        home = os.path.join(cluster.home, user)
        os.mkdir(home, 0o755)
        os.chown(home, number, number)
    # Where the users can put what they share with each other.
    os.mkdir(os.path.join(cluster.home, "shared"))
    os.chmod(os.path.join(cluster.home, "shared"), 0o1777)


def plugstack(plugin, arguments, word="optional"):
    """plugin: path of spank_dp.so, or None for a Slurm without it."""
    if plugin is None:
        return "# no plugin: none was built when this cluster was started, or none was wanted\n"
    if re.search(r"\s", plugin):
        raise ClusterError(f"the plugin's path has a blank in it, which plugstack.conf cannot hold: {plugin}; move the checkout")
    daemon = os.path.join(os.path.dirname(os.path.dirname(plugin)), "bin", "dp-rendezvousd")
    return f"{word} {plugin} daemon={daemon} {arguments}".rstrip() + "\n"


def _write(path, content, mode=0o644):
    data = content if isinstance(content, bytes) else content.encode()
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as out:
        out.write(data)


# slurmd of 26.05 moves the processes of its cgroup (version 2) into another one, its parent among them, which ends just then
# ("No such process"): now and then it gives up, even twice.
_SOME_TRIES = ("{0} && n=1; until test -e /run/slurmd.pid; do pgrep -x slurmd > /dev/null || { test $n -lt 6 && {0} && n=$((n + 1)); } || exit 1; "
               "sleep 0.1; done")


def start_services(cluster, groups, machine, pid, preload=None, accounts=False):
    """Begins to start munge and Slurm's daemon in a machine; returns a function that waits for it and returns the exit code.
    preload: a library for the daemon; accounts: whether slurmctld's accounting comes before it."""
    munge = (f"munged --key-file={cluster.state}/munge/munge.key --log-file={cluster.log(f'munged-{machine}.log')} "
             "--pid-file=/run/munge/munged.pid --seed-file=/run/munge/munged.seed --socket=/run/munge/munge.socket.2")
    daemon = "slurmctld" if machine == HEAD else "slurmd"
    before = f"{munge} && {accounting.start_command(cluster)}" if accounts else munge
    if preload:
        daemon = f"env LD_PRELOAD={preload} {daemon}"
        if machine != HEAD:
            daemon = _SOME_TRIES.replace("{0}", daemon)
    child = os.fork()
    if child == 0:
        try:
            kernel.die_with_parent(signal.SIGKILL)  # it also holds up's lock
            output = os.open(cluster.log(f"start-{machine}.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            null = os.open("/dev/null", os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            # A clean environment: what the caller's has (SLURM_CONF, LD_LIBRARY_PATH …) is not a machine's.
            os.environ.clear()
            os.environ["LANG"] = "C.UTF-8"
            os._exit(enter.run(groups, machine, pid, "root", ["sh", "-c", f"{before} && {daemon}"], "/"))
        finally:
            os._exit(1)
    return lambda: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def require_started(cluster, machine, code):
    if code != 0:
        raise ClusterError(f"the services of {machine} did not start (exit code {code}):\n" + evidence(cluster, [machine]))


_PORTS = {"slurmctld": 6817, "slurmd": 6818}


def wait_for_port(cluster, machine, pid, deadline=20):
    """Until the machine's Slurm daemon listens."""
    daemon = "slurmctld" if machine == HEAD else "slurmd"
    listening = f":{_PORTS[daemon]:04X} 00000000:0000 0A "
    end = time.monotonic() + deadline
    while True:
        with open(f"/proc/{pid}/net/tcp", encoding="ascii") as sockets:
            if listening in sockets.read():
                return
        if time.monotonic() > end:
            raise ClusterError(f"{daemon} of {machine} does not listen after {deadline} s:\n" + evidence(cluster, [machine]))
        time.sleep(0.02)


def ask(pid, *command, check=False):
    """Runs one of Slurm's commands as root on the machine with that process 1."""
    return subprocess.run(["nsenter", "-t", str(pid), "-m", "-u", "-n", "-i", "-p", *command], capture_output=True, text=True, check=check,
                          stdin=subprocess.DEVNULL, timeout=60)


def node_states(head):
    """{node: state} as sinfo has it; a trailing * means that the node does not answer."""
    done = ask(head, "sinfo", "-h", "-N", "-o", "%N %T")
    return dict(line.split() for line in done.stdout.splitlines())


def wait_for_idle(cluster, head, nodes, deadline):
    end = time.monotonic() + deadline
    while True:
        states = node_states(head)
        if all(states.get(node) in ("idle", "mixed", "allocated") for node in nodes):
            return
        if time.monotonic() > end:
            late = [node for node in nodes if states.get(node) not in ("idle", "mixed", "allocated")]
            named = ", ".join(f"{node} is {states.get(node, 'unknown to slurmctld')}" for node in late)
            raise ClusterError(f"after {deadline:.0f} s {named}:\n" + evidence(cluster, [HEAD] + late[:2]))
        time.sleep(0.05)


def evidence(cluster, machines):
    """The ends of the logs that say why something did not start."""
    out = []
    for machine in machines:
        slurm = "slurmctld.log" if machine == HEAD else f"slurmd-{machine}.log"
        for name in (f"start-{machine}.log", f"munged-{machine}.log", *(("mariadb.log", "slurmdbd.log") if machine == HEAD else ()), slurm):
            try:
                with open(cluster.log(name), encoding="utf-8", errors="replace") as lines:
                    tail = lines.readlines()[-12:]
            except FileNotFoundError:
                continue
            if tail:
                out += [f"--- {name}, its last lines", *(line.rstrip() for line in tail)]
    return "\n".join(out) or "(no log was written)"
