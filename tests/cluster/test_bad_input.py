# SPDX-License-Identifier: Apache-2.0
"""Bad input: one clear line that says what to do, nothing launched or everything ended, no node drained."""
import os
import re
import struct
import subprocess
import time

import pytest
from localcluster.harness import BUILD

RANK = os.path.join(BUILD, "tests/rank")


def said(done):
    """What slurm-dp said, without Slurm's own words before it."""
    return [line[line.index("slurm-dp:"):] for line in done.stderr.splitlines() if "slurm-dp:" in line]


@pytest.mark.parametrize("option, words", [
    ("--dp-world=0", "--dp-world=0: not a number of ranks; give auto"),
    ("--dp-world=-1", "--dp-world=-1: not a number of ranks; give auto"),
    ("--dp-world=abc", "--dp-world=abc: not a number of ranks; give auto"),
    ("--dp-world=9", "--dp-world=9, but this step has 8 tasks; give -n 9"),
    ("--dp-timeout=soon", "--dp-timeout=soon: not a number of seconds; give a whole number"),
    ("--dp-timeout=0", "--dp-timeout=0: not a number of seconds; give a whole number"),
    ("--dp-port=80", "--dp-port=80: not a port; give auto"),
    ("--dp-interface=", "--dp-interface=: not an interface's name; give"),
    ("--dp-interface=10.0.0.0/40", "--dp-interface=10.0.0.0/40: not a network in CIDR notation; give"),
    ("--dp-store=redis", "--dp-store=redis: no such store; give hold"),
    ("--dp-on-failure=retry", "--dp-on-failure=retry: no such action; give abort"),
    ("--dp-slow=20%", "--dp-slow=20%: not a percentage (0: nobody is named); give a whole number from 0 to "),
    ("--dp-hang-timeout=10m", "--dp-hang-timeout=10m: not a number of seconds (0: no rank is watched); give a whole number from 0"),
    ("--dp-preflight=yes", "--dp-preflight=yes: no such examination; give quick"),
    ("--dp-nccl-debug=", "--dp-nccl-debug=: not a file's name; give on"),
    ("--dp-record=", "--dp-record=: not a directory's name; give off"),
    ("--dp-record=~/rec", "--dp-record=~/rec: ~ and $ are not expanded here; give the whole path"),
    ("--dp-nccl-debug=$SCRATCH/nccl", "--dp-nccl-debug=$SCRATCH/nccl: ~ and $ are not expanded here; give the whole path"),
    ("--dp-record-interval=1s", "--dp-record-interval=1s: not a number of seconds; give one from 0.1 to 60, as in 0.5"),
    ("--dp-record-interval=0.01", "--dp-record-interval=0.01: not a number of seconds; give one from 0.1 to 60, as in 0.5"),
    ("--dp-record-interval=5", "--dp-record-interval needs --dp-record=DIR"),
    ("--dp-restarts=5", "--dp-restarts needs --dp-on-failure=restart"),
    ("--dp-final-exit=3", "--dp-final-exit needs --dp-on-failure=restart"),
    ("--dp-final-exit=300", "--dp-final-exit=300: not a list of exit codes; give numbers"),
    ("--dp-tensor=0", "--dp-tensor=0: not a number of ranks; give"),
    ("--dp-pipeline=99999999999", "--dp-pipeline=99999999999: not a number of ranks; give"),
    ("--dp-tensor=3", "--dp-tensor=3 and --dp-pipeline=1 make groups of 3 ranks, which do not divide this step's 8 tasks; give"),
    ("--dp-world=8 --dp-pipeline=3", "a world of 8 ranks (--dp-world) cannot be divided by --dp-tensor=1 times --dp-pipeline=3; give"),
])
@pytest.mark.parametrize("line", ["optional", "required"])
def test_srun_refuses_before_anything_starts(cluster, another_line, option, words, line):
    target = cluster if line == "optional" else another_line
    done = target.run(["srun", "-N2", "-n8", "--ntasks-per-node=4", *option.split(), "touch", "/home/alice/launched"])
    assert done.returncode != 0
    assert len(said(done)) == 1 and words in said(done)[0], done.stderr
    assert target.run(["test", "-e", "/home/alice/launched"]).returncode == 1
    target.assert_idle()
    target.assert_nothing_left()


@pytest.fixture(scope="module")
def another_line():
    """A cluster whose plugstack.conf says `required` instead of `optional`: our refusals must not depend on it."""
    from conftest import cluster_name
    from localcluster.harness import TestCluster
    with TestCluster(cluster_name("-required"), required=True) as up:
        yield up


def test_after_a_refusal_the_allocation_is_free_for_the_next_step(cluster):
    done = cluster.run(["salloc", "-Q", "-N2", "-n4", "--ntasks-per-node=2", "sh", "-c",
                        f"srun --dp-world=8 hostname; timeout 20 srun --dp-world=4 {RANK} world"], timeout=60)
    assert "give -n 8" in said(done)[0]
    assert done.stdout.count("size=4") == 4, done.stderr
    cluster.assert_idle()


def test_an_empty_variable_counts_as_unset(cluster):
    done = cluster.run(["srun", "-n2", "hostname"], env={"SLURM_DP_TIMEOUT": "", "SLURM_DP_WORLD": ""}, check=True)
    assert done.stdout.count("node") == 2 and said(done) == []


@pytest.mark.parametrize("own", [[], ["--dp-world=auto"]])
def test_an_inherited_option_that_does_nothing_refuses_nothing(cluster, own):
    done = cluster.run(["srun", "-n2", *own, "hostname"], env={"SLURM_DP_RECORD_INTERVAL": "5", "SLURM_DP_RESTARTS": "3"}, check=True)
    assert done.stdout.count("node") == 2 and said(done) == [], done.stderr
    done = cluster.run(["salloc", "-Q", "-n2", "--dp-record-interval=5", "srun", *own, "hostname"], check=True)
    assert done.stdout.count("node") == 2 and said(done) == [], done.stderr


def test_a_malformed_variable_is_refused_by_its_name(cluster):
    done = cluster.run(["srun", "-n2", "hostname"], env={"SLURM_DP_TIMEOUT": "soon"})
    assert done.returncode != 0 and done.stdout == ""
    assert "SLURM_DP_TIMEOUT=soon" in said(done)[0]


def test_sbatch_refuses_at_once(cluster):
    done = cluster.run(["sbatch", "-n2", "--dp-world=abc", "--wrap", "hostname"])
    assert done.returncode != 0 and "--dp-world=abc" in done.stderr and "Submitted" not in done.stdout


def test_a_rank_that_never_arrives_is_named_and_the_step_ends(cluster):
    began = time.monotonic()
    done = cluster.run(["srun", "-N2", "-n8", "--ntasks-per-node=4", "--dp-timeout=8", RANK, "late", "5", "600"], timeout=60)
    assert done.returncode != 0
    assert time.monotonic() - began < 30
    named = [line for line in said(done) if "node02: rank 5 started, no hello (pid " in line and line.endswith("; ending the step")]
    assert len(named) == 1 and "7 of 8 ranks" in named[0], done.stderr
    cluster.assert_idle()
    cluster.assert_nothing_left()


def test_a_node_that_never_connects_is_named_and_the_step_ends(cluster):
    with cluster.cut_off("node02", "node01"):
        began = time.monotonic()
        done = cluster.run(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-timeout=3", RANK, "world"], timeout=60)
        assert done.returncode != 0
        assert time.monotonic() - began < 20
        text = "\n".join(said(done))
        assert "ranks 2-3 on node02" in text or "node02: this node could not reach" in text, done.stderr
    cluster.assert_idle(deadline=10)
    cluster.assert_nothing_left()


def test_a_missing_daemon_is_named_and_nothing_runs(another_cluster):
    where = "/nowhere/dp-rendezvousd"
    broken = another_cluster(plugstack_args=f"daemon={where}")
    done = broken.run(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=auto", "touch", "/home/alice/launched"], timeout=30)
    assert done.returncode != 0
    assert said(done) and all(f"cannot open the daemon {where}" in line for line in said(done)), done.stderr
    assert len(said(done)) <= 2  # one line a node
    assert broken.run(["test", "-e", "/home/alice/launched"]).returncode == 1
    broken.assert_idle()
    assert broken.run(["srun", "-N2", "hostname"], check=True).stdout.count("node") == 2


TAKE_PORTS = """
import resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))
held = []
for port in range(20000, 32768):
    s = socket.socket()
    try:
        s.bind(("", port))
        s.listen()
        held.append(s)
    except OSError:
        pass
print(len(held), flush=True)
time.sleep(60)
"""


def test_every_candidate_port_taken_is_said_with_the_ports(cluster):
    taker = cluster.popen(["srun", "-w", "node01", "-n1", "--overlap", "/usr/bin/python3", "-c", TAKE_PORTS], user="bob")
    try:
        assert int(taker.stdout.readline()) > 12000
        done = cluster.run(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=auto", "touch", "/home/alice/launched"], timeout=30)
        assert done.returncode != 0
        assert re.search(r"no free port for the rendezvous daemon: all 32 candidates are in use \(ports [\d,]+\); end what listens",
                         said(done)[0]), done.stderr
        assert cluster.run(["test", "-e", "/home/alice/launched"]).returncode == 1
    finally:
        taker.terminate()
        taker.communicate(timeout=60)
    cluster.assert_idle()
    cluster.assert_nothing_left()


def test_a_wrong_setting_in_plugstack_conf_is_slurmds_to_say_and_jobs_still_run(another_cluster):
    one = another_cluster(plugstack_args="colour=green")
    assert '"colour=green" is not a setting of slurm-dp' in one.log("slurmd-node01.log")
    assert one.run(["srun", "-N2", "-n2", "--dp-world=auto", RANK, "world"], check=True).stdout.count("size=2") == 2
    assert "newest tested" not in one.log("slurmd-node01.log")


def test_a_plugin_for_another_slurm_is_refused_by_slurm_and_jobs_still_run(another_cluster, tmp_path):
    """As after an upgrade of Slurm alone: the release that the plugin was built for is one that nobody has."""
    with open(os.path.join(BUILD, "lib/spank_dp.so"), "rb") as file:
        plugin = bytearray(file.read())
    symbols = subprocess.run(["nm", "-D", os.path.join(BUILD, "lib/spank_dp.so")], capture_output=True, text=True, check=True).stdout
    at = int(re.search(r"(\w+) \w plugin_version\n", symbols).group(1), 16)  # in .rodata, where file offset equals address
    assert struct.unpack_from("<I", plugin, at)[0] >> 16 in range(22, 40)
    struct.pack_into("<I", plugin, at, 99 << 16 | 5 << 8)
    os.makedirs(tmp_path / "lib")
    (tmp_path / "lib/spank_dp.so").write_bytes(plugin)
    one = another_cluster(plugin=str(tmp_path / "lib/spank_dp.so"))
    done = one.run(["srun", "-N2", "-n2", "sh", "-c", "echo $SLURM_PROCID"], check=True)
    assert sorted(done.stdout.split()) == ["0", "1"]
    assert "Incompatible" in done.stderr and "slurm-dp:" not in done.stderr, done.stderr
    one.assert_idle()
