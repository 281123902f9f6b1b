# SPDX-License-Identifier: Apache-2.0
"""`dpctl doctor`: each fault that can be planted on a node is found, and nothing else is."""
import contextlib
import json
import os
import re
import shutil
import subprocess

import pytest
from conftest import cluster_name, planted_on
from localcluster.harness import BUILD, TestCluster

DPCTL = os.path.join(BUILD, "bin/dpctl")
NODE = "node02"
ON_NODE = ["srun", "-w", NODE, "-n1"]


def complaints(text):
    """{check: its finding} of those that are not ok."""
    return {one["check"]: one for one in json.loads(text)["checks"] if one["level"] != "ok"}


def examine(cluster, *program, before="", **keywords):
    words = " ".join(["exec", DPCTL, "doctor", "--json", *program])
    return cluster.run([*ON_NODE, "sh", "-c", f"{before} {words}"], cwd="/home/alice", **keywords)


@pytest.fixture(scope="module")
def healthy(cluster):
    """What it says of the node as it is: this machine's clock may well run free."""
    found = complaints(examine(cluster, check=False).stdout)
    assert found.keys() <= {"clock"}, found
    return found.keys()


def planted(cluster, plant, undo):
    return planted_on(cluster, NODE, plant, undo)


def only(found, healthy, check, level, seen):
    assert found.keys() - healthy == {check}, found
    assert found[check]["level"] == level and seen in found[check]["seen"], found[check]
    assert found[check]["why"] and found[check]["remedy"]


def put(cluster, file, there):
    shutil.copy(file, cluster.host_path(there))
    os.chmod(cluster.host_path(there), 0o755)
    return there


def test_a_healthy_node(cluster, healthy):
    done = cluster.run([*ON_NODE, DPCTL, "doctor", "--", "/usr/bin/true"], cwd="/home/alice", check=True)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[-1].startswith(f"{NODE}: ") and "0 faults" in lines[-1]
    for expected in ("  ok       host name ", "  ok       plugstack.conf ", "  ok       process tracking ", "  ok       program "):
        assert any(line.startswith(expected) for line in lines), done.stdout


def test_a_small_mtu(cluster, healthy):
    with planted(cluster, "ip link set eth0 mtu 1280", "ip link set eth0 mtu 1500"):
        done = examine(cluster, check=True)
        table = cluster.run([*ON_NODE, DPCTL, "doctor"], cwd="/home/alice", check=True).stdout
    only(complaints(done.stdout), healthy, "network", "warning", "MTU 1280")
    assert "  WARNING  network " in table and "           → compare it with the other nodes (ip link show eth0)" in table


def test_a_name_that_leads_to_the_node_itself(cluster, healthy):
    hosts = f"sed 's/^[0-9.]*\\([[:space:]].*{NODE}\\)/127.0.1.1\\1/' /etc/hosts > /run/hosts && mount --bind /run/hosts /etc/hosts"
    with planted(cluster, hosts, "umount /etc/hosts"):
        found = complaints(examine(cluster, check=True).stdout)
    only(found, healthy, "host name", "warning", f"{NODE} is 127.0.1.1")


@pytest.mark.parametrize("kind, seen", [("size=64k", "full"), ("nr_inodes=2", "inodes")])
def test_a_full_disk(cluster, healthy, kind, seen):
    folder = "/home/alice/full"
    fill = f"mkdir -p {folder} && mount -t tmpfs -o {kind} none {folder} && chmod 1777 {folder} && (head -c 1M /dev/zero > {folder}/x || true)"
    with planted(cluster, fill, f"umount {folder}"):
        done = examine(cluster, before=f"cd {folder};")
    assert done.returncode == 1
    only(complaints(done.stdout), healthy, "working directory", "fault", seen)


def test_little_shared_memory(cluster, healthy):
    with planted(cluster, "mount -t tmpfs -o size=64m,mode=1777 none /dev/shm", "umount /dev/shm"):
        found = complaints(examine(cluster, check=True).stdout)
    only(found, healthy, "shared memory", "warning", "64 MiB of 64 MiB free")


@pytest.mark.parametrize("limit, check, seen", [("-n 200", "open files", "200"), ("-c unlimited", "core files", "unlimited")])
def test_limits(cluster, healthy, limit, check, seen):
    pattern = open("/proc/sys/kernel/core_pattern", encoding="ascii").read()
    if check == "core files" and pattern[0] in "|/":
        pytest.skip(f"this kernel writes core files elsewhere: {pattern}")
    only(complaints(examine(cluster, before=f"ulimit {limit};", check=True).stdout), healthy, check, "warning", seen)


def test_ports_that_any_connection_may_take(cluster, healthy):
    file = "/proc/sys/net/ipv4/ip_local_port_range"
    before = cluster.node(NODE, f"cat {file}", check=True).stdout.split()
    with planted(cluster, f"echo 20000 60999 > {file}", f"echo {' '.join(before)} > {file}"):
        found = complaints(examine(cluster, check=True).stdout)
    only(found, healthy, "ephemeral ports", "warning", "20000 to 60999")


@pytest.mark.native
def test_a_quota_of_cpu_time():
    """On this machine itself: the cluster's nodes have no cgroup with the cpu controller."""
    v2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
    group = "/sys/fs/cgroup/slurm-dp-doctor" if v2 else "/sys/fs/cgroup/cpu/slurm-dp-doctor"
    quota, value = ("cpu.max", "50000 100000") if v2 else ("cpu.cfs_quota_us", "50000")
    with contextlib.suppress(OSError):
        os.mkdir(group)
    try:
        if not os.path.exists(f"{group}/{quota}"):
            pytest.skip(f"{group} has no {quota}: no cpu controller here")
        enter = f"echo {value} > {group}/{quota} && echo $$ > {group}/cgroup.procs && exec {DPCTL} doctor --json"
        done = subprocess.run(["sh", "-c", enter], capture_output=True, text=True, check=False)
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(group)
    found = complaints(done.stdout)
    assert found["CPUs"]["level"] == "warning" and "cgroup /slurm-dp-doctor allows the time of 0.5" in found["CPUs"]["seen"], found


def test_a_program_whose_library_is_missing(cluster, healthy, tmp_path):
    (tmp_path / "part.c").write_text("int part(void) { return 0; }\n", encoding="ascii")
    (tmp_path / "train.c").write_text("int part(void);\nint main(void) { return part(); }\n", encoding="ascii")
    subprocess.run("gcc -shared -fPIC -o libpart-of-train.so part.c && gcc -o train train.c -L. -lpart-of-train", cwd=tmp_path, shell=True, check=True)
    done = examine(cluster, "--", put(cluster, tmp_path / "train", "/home/alice/train-without-part"))
    assert done.returncode == 1
    only(complaints(done.stdout), healthy, "program", "fault", "needs libpart-of-train.so, not found here")
    done = examine(cluster, "--", "/home/alice/no-such-program")
    only(complaints(done.stdout), healthy, "program", "fault", "does not exist")


def test_a_controller_that_does_not_answer(cluster, healthy):
    done = examine(cluster, before="sed 's/^SlurmctldHost=.*/SlurmctldHost=node01/' $SLURM_CONF > /tmp/slurm.conf; SLURM_CONF=/tmp/slurm.conf; export SLURM_CONF;")
    assert done.returncode == 1
    found = complaints(done.stdout)
    assert found.keys() - healthy == {"Slurm"} and "does not answer" in found["Slurm"]["seen"], found


def test_nobody_is_disturbed_and_nothing_stays(cluster):
    before = cluster.run("ls -A; ls -A /tmp", check=True).stdout
    examine(cluster)
    assert cluster.run("ls -A; ls -A /tmp", check=True).stdout == before
    cluster.assert_nothing_left()


# In a step.

@pytest.fixture(scope="module")
def four():
    with TestCluster(cluster_name("-four"), nodes=4) as up:
        yield up


def examine_step(cluster, *options):
    """→ {host: its complaints}, and the complaints between the nodes."""
    done = cluster.run(["srun", "-N4", "--ntasks-per-node=2", "--dp-world=auto", *options, DPCTL, "doctor", "--json"], cwd="/home/alice", timeout=120)
    said = json.loads(done.stdout)
    has_fault = any(one["level"] == "fault" for topic in [said["between"], *(node["checks"] for node in said["nodes"])] for one in topic)
    assert done.returncode == has_fault and ("rank 0 on node01 exited with code 1" in done.stderr if has_fault else done.stderr == ""), done.stderr
    return {node["host"]: complaints(json.dumps(node)) for node in said["nodes"]}, complaints(json.dumps({"checks": said["between"]}))


def but_for_what_is_measured(between, measured=("cores", "memory", "links")):
    """The complaints between the nodes: they are one machine, on which other tests run."""
    return {check: one for check, one in between.items() if check not in measured}


def told_between(said):
    return but_for_what_is_measured(complaints(json.dumps({"checks": said["between"]})))


def examined_quietly(examine, is_quiet):
    """Other tests use these cores, too: a link may be slow for as long as it is measured."""
    for _ in range(3):
        said = examine()
        if is_quiet(said):
            break
    return said


def test_the_nodes_of_a_step_are_alike(four):
    nodes, between = examined_quietly(lambda: examine_step(four), lambda said: not said[1])
    assert sorted(nodes) == [f"node0{number}" for number in range(1, 5)]
    assert all(found.keys() <= {"clock"} for found in nodes.values()), nodes
    assert between == {}
    command = ["srun", "-N4", "--ntasks-per-node=1", "--dp-world=auto", DPCTL, "doctor"]
    table = examined_quietly(lambda: four.run(command, cwd="/home/alice", check=True).stdout, lambda said: "warning  links" not in said)
    assert "\nbetween the nodes\n" in table and "  ok       links  " in re.sub(" +links +", "       links  ", table), table
    assert re.search(r"^node\[01-04\]: \d+ checks, 0 faults", table, re.M), table
    four.assert_nothing_left()


def test_an_mtu_that_one_node_has(four):
    with planted_on(four, "node03", "ip link set eth0 mtu 1280", "ip link set eth0 mtu 1500"):
        nodes, between = examine_step(four)
    between = but_for_what_is_measured(between)
    assert "network" in nodes.pop("node03")
    assert all(found.keys() <= {"clock"} for found in nodes.values()), nodes
    assert between.keys() == {"MTU"} and between["MTU"]["seen"] == "node03 has 1280; 3 others have 1500", between
    assert between["MTU"]["level"] == "fault"


def test_a_slow_link_of_one_node(four):
    slow = "tc qdisc add dev eth0 root tbf rate 1mbit burst 16kb latency 400ms"
    with planted_on(four, "node02", slow, "tc qdisc del dev eth0 root"):
        nodes, between = examine_step(four)
    between = but_for_what_is_measured(between, ("cores", "memory"))
    assert all(found.keys() <= {"clock"} for found in nodes.values()), nodes
    assert between.keys() == {"links"} and between["links"]["seen"].startswith("node02 with all others: "), between
    assert between["links"]["remedy"] == "leave it out: --exclude=node02"


def test_two_nodes_that_cannot_reach_each_other(four):
    four.cut("node03", "node04")
    try:
        _, between = examine_step(four)
    finally:
        four.heal("node03")
    between = but_for_what_is_measured(between, ("cores", "memory"))
    assert between.keys() == {"links"} and between["links"]["level"] == "fault", between
    assert between["links"]["seen"].startswith("node03 with node04: no connection to "), between


FAST_CLOCK = """#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec* now) {
    const long done = syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += 600;
    return (int)done;
}
"""


def build(tmp_path, name, text, *options):
    (tmp_path / f"{name}.c").write_text(text, encoding="ascii")
    subprocess.run(["gcc", "-o", name, f"{name}.c", *options], cwd=tmp_path, check=True)
    return tmp_path / name


def test_a_clock_that_is_ten_minutes_ahead(four, tmp_path):
    """Of one node's doctor: this machine has one clock."""
    ahead = put(four, build(tmp_path, "ahead.so", FAST_CLOCK, "-shared", "-fPIC"), "/home/alice/ahead.so")
    program = f"test $SLURMD_NODENAME != node03 || export LD_PRELOAD={ahead}; exec {DPCTL} doctor --json"
    done = four.run(["srun", "-N4", "--ntasks-per-node=1", "--dp-world=auto", "sh", "-c", program], cwd="/home/alice", timeout=120)
    said = json.loads(done.stdout)
    between = told_between(said)
    assert between.keys() == {"clocks"} and between["clocks"]["level"] == "fault" and between["clocks"]["seen"] == "node03 is 600 s ahead", between


def test_a_node_with_another_nccl(four, tmp_path):
    """Of a program, whose library is another file there."""
    for version in (22701, 22809):
        nccl = f"int ncclGetVersion(int* version) {{ *version = {version}; return 0; }}\n"
        put(four, build(tmp_path, f"nccl-{version}.so", nccl, "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2"), f"/home/alice/nccl-{version}.so")
    os.symlink("nccl-22701.so", tmp_path / "libnccl.so")
    trains = put(four, build(tmp_path, "trains", "int ncclGetVersion(int*);\nint main(void) { int v; return ncclGetVersion(&v); }\n", "-L.", "-lnccl"), "/home/alice/trains")
    program = (f"mkdir -p /tmp/nccl; test $SLURMD_NODENAME = node02 && version=22701 || version=22809; ln -sf /home/alice/nccl-$version.so /tmp/nccl/libnccl.so.2; "
               f"LD_LIBRARY_PATH=/tmp/nccl exec {DPCTL} doctor --json -- {trains}")
    done = four.run(["srun", "-N4", "--ntasks-per-node=1", "--dp-world=auto", "sh", "-c", program], cwd="/home/alice", timeout=120)
    between = told_between(json.loads(done.stdout))
    assert between.keys() == {"NCCL"} and between["NCCL"]["seen"] == "node02 has 2.27.1; 3 others have 2.28.9", between


def test_a_node_with_another_driver(four):
    """As if it had another driver: a library in the place of NVIDIA's."""
    fake = os.path.join(BUILD, "lib/libfake_nvml.so")
    if not os.path.exists(fake):
        pytest.skip(f"{fake} is not built: it is the unit tests'")
    program = f"if test $SLURMD_NODENAME = node04; then cp {fake} /tmp/libnvidia-ml.so.1; export LD_LIBRARY_PATH=/tmp; fi; exec {DPCTL} doctor --json"
    done = four.run(["srun", "-N4", "--ntasks-per-node=1", "--dp-world=auto", "sh", "-c", program], cwd="/home/alice", timeout=120)
    between = told_between(json.loads(done.stdout))
    assert between.keys() == {"driver", "GPUs"}, between
    assert between["driver"]["seen"] == "node04 has 580.65.06; 3 others have none"
