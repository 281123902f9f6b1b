# SPDX-License-Identifier: Apache-2.0
"""A cluster in a test's hands: start it, run things on it as its users, break it, and see that nothing was left behind."""
import contextlib
import os
import shlex
import signal
import statistics
import subprocess
import time

from . import cgroups
from .names import CHECKOUT, Cluster
from .versions import tested

VERSION = tested()
ACCOUNTING = not VERSION.suite  # whether a cluster of that Slurm can have it here
BUILD = VERSION.path()  # where the product and the tests' programs are built for the Slurm that is tested
SCRIPT = os.path.join(CHECKOUT, "tests", "cluster", "cluster")


class Left(AssertionError):
    """Something was left behind; the message lists it."""


class TestCluster:
    """One cluster of a name of its own. Commands are a list, or a string for sh."""

    __test__ = False  # pytest: not a class of tests

    def __init__(self, name, nodes=2, plugstack_args="", plugin=None, required=False, root=None, conf=(), cgroup=None, accounting=False):
        self.name = name
        self.nodes = [f"node{n:02d}" for n in range(1, nodes + 1)]
        self._plugstack_args = plugstack_args
        self._required = required
        self._plugin = plugin
        self._root = root
        self._conf = conf
        self.accounting = accounting
        self._cgroup = cgroup or os.environ.get("DP_TEST_CGROUP") or "v1"
        self._paths = Cluster(name)
        self.environment = {**os.environ, "DP_CLUSTER": name}

    def up(self):
        command = ["up", "--nodes", str(len(self.nodes))]
        if self._plugstack_args:
            command += ["--plugstack-args", self._plugstack_args]
        if self._required:
            command += ["--required"]
        if self._plugin:
            command += ["--plugin", self._plugin]
        if self._root:
            command += ["--root", self._root]
        else:
            command += ["--slurm", VERSION.number]
        command += ["--cgroup", self._cgroup]
        if self.accounting:
            command += ["--accounting"]
        for line in self._conf:
            command += ["--conf", line]
        self.script(*command, timeout=120)
        return self

    def down(self):
        self.script("down", timeout=60)

    def __enter__(self):
        return self.up()

    def __exit__(self, *_):
        self.down()

    def script(self, *words, timeout=60, check=True):
        """A verb of tests/cluster/cluster."""
        done = subprocess.run([SCRIPT, *words], env=self.environment, capture_output=True, text=True, timeout=timeout, check=False,
                              stdin=subprocess.DEVNULL)
        if check and done.returncode != 0:
            raise AssertionError(f"cluster {shlex.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    # Running things

    def run(self, command, user="alice", timeout=60, cwd=None, env=None, check=False, **keywords):
        """Runs on the head; → CompletedProcess with text. On timeout it is killed, and subprocess.TimeoutExpired says what it printed.

        cwd: a folder on the cluster (None: the current directory). env: added to the environment."""
        keywords = {"capture_output": True, "text": True, **keywords}
        if keywords["text"]:
            keywords.setdefault("errors", "replace")  # a path may be no text
        if "input" not in keywords:
            keywords.setdefault("stdin", subprocess.DEVNULL)
        done = subprocess.run(self._exec(command, user, cwd), env={**self.environment, **(env or {})}, timeout=timeout, check=False,
                              **keywords)
        if check and done.returncode != 0:
            raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def popen(self, command, user="alice", cwd=None, env=None, **keywords):
        """As run, but → Popen at once. Signals sent to it reach the command; for a command given as a string that is the shell, so give
        a list where srun itself is to get them."""
        keywords = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **keywords}
        return subprocess.Popen(self._exec(command, user, cwd), env={**self.environment, **(env or {})}, **keywords)

    def let_go(self, job, user="alice"):
        """Slurm holds a job back for two minutes that was put into the queue again; its owner may have it start. Not at once: what starts in
        the second in which the last round was ended is refused as "Job credential revoked", and is lost."""
        if self.run(["squeue", "--noheader", f"--jobs={job}", "--states=PENDING"], user=user).stdout:
            time.sleep(2)
            self.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], user=user)

    def node(self, name, command, timeout=60, check=False):
        """Runs as root on a node (or on the head: "head")."""
        done = subprocess.run([SCRIPT, "node", name, "--", *_words(command)], env=self.environment, capture_output=True, text=True,
                              timeout=timeout, check=False, stdin=subprocess.DEVNULL)
        if check and done.returncode != 0:
            raise AssertionError(f"{command} on {name}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def restart_slurmd(self, node, words=""):
        preload = f"env LD_PRELOAD={VERSION.path('tests/unified-cgroup.so')} " if self._cgroup == "v2" else ""
        self.node(node, f"kill $(cat /run/slurmd.pid); while test -e /run/slurmd.pid; do sleep 0.01; done; {preload}slurmd {words}", check=True)

    def _exec(self, command, user, cwd):
        return [SCRIPT, "exec", "--user", user, *(["--chdir", cwd] if cwd else []), "--", *_words(command)]

    # Breaking it

    def cut(self, node, other=None):
        self.script("cut", node, *(["--from", other] if other else []))

    def heal(self, node):
        self.script("heal", node)

    def kill(self, node):
        self.script("kill", node)

    @contextlib.contextmanager
    def cut_off(self, node, other=None):
        self.cut(node, other)
        try:
            yield
        finally:
            self.heal(node)

    @contextlib.contextmanager
    def bad_line(self, node, delay_ms, loss_percent):
        """What the node sends is late and partly lost; see lossy.py."""
        program = os.path.join(os.path.dirname(os.path.realpath(__file__)), "lossy.py")
        pid = self.processes([node], everyone=True)[0]["pid"]
        line = subprocess.Popen(["nsenter", f"--net=/proc/{pid}/ns/net", "/usr/bin/python3", program, str(delay_ms), str(loss_percent)],
                                stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        try:
            assert line.stdout.readline() == "ready\n"
            yield
        finally:
            line.terminate()
            line.wait(timeout=20)

    # What is there

    def log(self, name):
        """Text of slurmctld.log, slurmd-node01.log, …"""
        with open(self._paths.log(name), encoding="utf-8", errors="replace") as text:
            return text.read()

    def host_path(self, path):
        """Where a file below /home of the cluster lies on this machine."""
        assert path.startswith("/home/"), path
        return os.path.join(self._paths.home, path[len("/home/"):])

    def processes(self, nodes=None, everyone=False):
        """Processes of ordinary users, and slurmstepds, on the nodes: [{node, pid (this machine's number), uid, command}]."""
        groups = cgroups.Groups(self._paths)
        found = []
        for node in nodes or self.nodes:
            for pid in groups.processes(node):
                try:
                    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as lines:
                        status = dict(line.rstrip("\n").split(":\t", 1) for line in lines if ":\t" in line)
                    with open(f"/proc/{pid}/cmdline", "rb") as words:
                        command = words.read().replace(b"\0", b" ").decode(errors="replace").strip() or status["Name"]
                except (FileNotFoundError, ProcessLookupError):
                    continue
                uid = int(status["Uid"].split()[0])
                if status["State"].startswith("Z") or not (everyone or uid >= 1000 or command.startswith("slurmstepd")):
                    continue
                found.append({"node": node, "pid": pid, "uid": uid, "command": command})
        return found

    def node_states(self):
        done = self.run(["sinfo", "-h", "-N", "-o", "%N %T"], user="root", check=True)
        return dict(line.split() for line in done.stdout.splitlines())

    def assert_idle(self, deadline=5):
        """Every node is idle within the deadline: none drained, completing, down or not answering."""
        def problem():
            states = self.node_states()
            # "planned": idle, and the scheduler had a plan for it when it last looked.
            return {node: states.get(node) for node in self.nodes if states.get(node) not in ("idle", "planned")}

        left = _until_empty(problem, deadline)
        if left:
            more = self.run("sinfo -R; squeue; squeue -s", user="root")
            raise Left(f"not idle after {deadline} s: {left}\n{more.stdout}{more.stderr}")

    def assert_nothing_left(self, user=None, job=None, deadline=10):
        """No process of an ordinary user (or of that one, or of that job) and no slurmstepd is left on any node."""
        from .names import USERS

        def problem():
            return [p for p in self.processes() if (user is None or p["uid"] == USERS[user]) and (job is None or _of_job(p["pid"], job))]

        left = _until_empty(problem, deadline)
        if left:
            raise Left(f"left after {deadline} s: " + "; ".join(f"{p['node']}: {p['command']} ({p['pid']})" for p in left))

    def next_job(self):
        return int(self.run("scontrol show config | sed -n 's/^NEXT_JOB_ID *= *//p'", user="root", check=True).stdout)

    def accounts(self, since, ended=True, deadline=10):
        """What Slurm's accounting has of the jobs from that number on: {job: [(step, program, state, exit code)]}. News reaches it
        every 5 s; waits until it knows all jobs, or all their ends."""
        def known():
            lines = self.run(["sacct", "--allusers", "--noheader", "--parsable2", "--starttime=today", "--format=JobID,JobName,State,ExitCode"], user="root",
                             check=True).stdout.splitlines()
            jobs = {job: [] for job in range(since, self.next_job())}
            for number, program, state, code in (line.split("|") for line in lines):
                job, _, step = number.partition(".")
                jobs.get(int(job.split("+")[0]), []).append((step, program, state.split()[0], code))  # 7+1: a heterogeneous job's second component
            return jobs

        def is_enough(rows):
            return rows and not (ended and any(state in ("PENDING", "RUNNING", "SUSPENDED") for *_, state, _ in rows))

        end = time.monotonic() + deadline
        while not all(map(is_enough, (found := known()).values())) and time.monotonic() < end:
            time.sleep(0.1)
        return {job: [row for row in rows if row[0]] for job, rows in found.items()}

    def assert_one_step_each(self, since):
        """In each of the jobs from that number on, a program is one step in Slurm's accounting, however often its ranks began."""
        found = self.accounts(since, ended=False)
        # The components of a heterogeneous step have its number.
        several = {job: steps for job, steps in found.items() if len({step[:2] for step in steps}) > len({program for _, program, *_ in steps})}
        assert not several, f"a program in several steps of a job: {several}"

    def assert_no_second_longer(self, step, plain, pairs):
        """The step takes no second longer than the plain one beside it, which is what a helper costs each step that outlives its last task.
        The median of the pairs says so: the machine, too, makes a step slow."""
        def seconds(command):
            began = time.monotonic()
            self.run(command, check=True)
            return time.monotonic() - began

        longer = [seconds(step) - seconds(plain) for _ in range(pairs)]
        assert statistics.median(longer) < 0.9, longer


def until(condition, deadline, what, every=0.05):
    """What condition() gave when it was true at last. What is started is not there at once: a process that is between two programs
    (in exec) has neither the one's words nor the other's.

    every: seconds between two looks; little where a moment must not be missed."""
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(every)
    raise AssertionError(f"not within {deadline} s: {what}")


def press_ctrl_c(step):
    """Twice, as srun wants it: the second time once it has seen the first one, or it may take the two for one."""
    step.send_signal(signal.SIGINT)
    while "one more within 1 sec" not in (line := step.stderr.readline()):
        assert line, "srun has ended"
    step.send_signal(signal.SIGINT)


def _words(command):
    return ["sh", "-c", command] if isinstance(command, str) else list(command)


def _until_empty(problem, deadline):
    end = time.monotonic() + deadline
    while (left := problem()) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def _of_job(pid, job):
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8") as lines:
            return f"/job_{job}/" in lines.read().replace("\n", "/\n")
    except OSError:
        return False
