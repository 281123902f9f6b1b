# SPDX-License-Identifier: Apache-2.0
"""The daemon finds every process of its step by the step's cgroup, on version 1 and on version 2: daemonized ones, too."""
import os
import re
import signal

import pytest
from conftest import cluster_name
from localcluster import cgroups
from localcluster.harness import BUILD, TestCluster, until

RANK = os.path.join(BUILD, "tests/rank")
STEP = ["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=auto"]
RUNAWAY = "sleep 4711"


@pytest.fixture(scope="module", params=["v1", "v2"])
def site(request):
    if request.param == "v2" and cgroups.UNIFIED not in cgroups.hierarchies():
        pytest.skip("this machine has no cgroup version 2 mounted")
    with TestCluster(cluster_name(f"-{request.param}"), cgroup=request.param) as up:
        up.version = request.param
        yield up


def start(site, rank="exec $0 meet 600"):
    """A world of ranks that each have begun a process in a session of its own, whose parent has ended."""
    step = site.popen([*STEP, "sh", "-c", f"(setsid {RUNAWAY} &); {rank}", RANK])
    until(lambda: len(runaways(site)) == 4, 10, "four processes without a parent")
    return step


def runaways(site):
    return [process for process in site.processes() if process["command"] == RUNAWAY]


def test_ranks_and_daemon_are_in_the_cgroup_of_the_step(site):
    step = start(site)
    seen = {name: [] for name in (RANK, "dp-rendezvousd")}
    for process in site.processes(["node01"]):
        for name, found in seen.items():
            if name in process["command"]:
                with open(f"/proc/{process['pid']}/cgroup", encoding="ascii") as lines:
                    found.append(next(line for line in lines if ("0::" if site.version == "v2" else ":freezer:") in line))
    assert len(seen[RANK]) == 2 and len(seen["dp-rendezvousd"]) == 1, seen
    assert len({re.search(r"/step_\d+\b", line).group() for lines in seen.values() for line in lines}) == 1, seen
    step.send_signal(signal.SIGTERM)
    step.communicate(timeout=30)
    site.assert_nothing_left()


def test_a_death_ends_what_has_left_its_parent(site):
    step = start(site, "[ $RANK = 2 ] && kill -9 $$; exec $0 meet 600")
    _, err = step.communicate(timeout=30)
    assert "slurm-dp: rank 2 on node02 was killed by signal 9 (SIGKILL); ending the step" in err
    site.assert_nothing_left()


def test_without_slurmstepd_the_daemon_ends_it(site):
    """Slurm ends nothing any more on that node."""
    step = start(site)
    for process in site.processes(["node02"]):
        if process["command"].startswith("slurmstepd") and ".0" in process["command"]:
            os.kill(process["pid"], signal.SIGKILL)
    until(lambda: not runaways(site), 5, "the processes without a parent ended")
    site.run(["scancel", "-u", "alice"])
    step.kill()  # srun itself would wait half a minute for the dead slurmstepd (KillWait)
    step.communicate(timeout=10)
    site.assert_nothing_left(deadline=5)
