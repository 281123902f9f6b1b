# SPDX-License-Identifier: Apache-2.0
"""dpctl collect: records on the nodes' own disks come together, whole or not at all, and what does not come is named."""
import json
import os
import re
import signal

import pytest
from conftest import planted_on
from localcluster.harness import BUILD, until

RANK = os.path.join(BUILD, "tests/rank")
DPCTL = os.path.join(BUILD, "bin/dpctl")
LOCAL = "/tmp/records"  # each node has a /tmp of its own
TO = "/home/alice/collected"
NAME = r"\d+\.\d+-[0-9a-f]{16}-node0[12]\.dprecord"


@pytest.fixture(autouse=True)
def no_records(cluster):
    for node in cluster.nodes:
        cluster.node(node, ["rm", "-rf", LOCAL], check=True)
    cluster.run(["rm", "-rf", TO], check=True)
    yield
    cluster.assert_nothing_left()


class Job:
    """Nodes of alice's, in which a step was recorded."""

    def __init__(self, cluster, record=f"--dp-record={LOCAL}", program="true", nodes=2):
        self.cluster = cluster
        job = cluster.run(["sbatch", "--parsable", f"-N{nodes}", "--no-kill", "-o", "/dev/null", "--wrap", "sleep 600"], cwd="/home/alice", check=True)
        self.number = job.stdout.strip()
        until(lambda: self.state() == "RUNNING", 20, "the job begins")
        done = cluster.run(["srun", f"--jobid={self.number}", "--overlap", f"-N{nodes}", f"-n{nodes}", record, *program.split()], check=True)
        assert all(line.startswith("slurm-dp: the tasks spent ") for line in done.stderr.splitlines()), done.stderr

    def state(self):
        return self.cluster.run(["squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={self.number}"], check=True).stdout.strip()

    def end(self):
        self.cluster.run(["scancel", "--full", self.number], check=True)
        until(lambda: self.state() == "CANCELLED", 40, "the job ends")
        self.cluster.assert_idle(deadline=40)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def collect(cluster, *words, **keywords):
    return cluster.run([DPCTL, "collect", *words], timeout=60, **keywords)


def collected(cluster):
    return sorted(cluster.run(["ls", "-A", TO]).stdout.split())


def report(cluster):
    said = json.loads(cluster.run([DPCTL, "report", "--json", TO], check=True).stdout)
    assert said["problems"] == [] and len(said["runs"]) == 1, said["problems"]
    return said["runs"][0]


def lines(done):
    assert done.returncode == 1 and done.stdout == "", done.stdout
    return done.stderr.splitlines()


def test_the_records_of_a_job_come_together(cluster):
    with Job(cluster, program=f"{RANK} pace 100 0 0") as job:
        assert cluster.run([DPCTL, "report", LOCAL]).returncode == 1
        done = collect(cluster, "--job", job.number, "--from", LOCAL, TO)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert done.stdout == f"2 records of job {job.number}, of 2 nodes (node[01-02]), are in {TO}\n"
        names = collected(cluster)
        assert len(names) == 2 and all(re.fullmatch(NAME, name) for name in names), names
        for name, node in zip(names, cluster.nodes):
            there = cluster.node(node, ["sha256sum", f"{LOCAL}/{name}"], check=True).stdout.split()[0]
            assert cluster.run(["sha256sum", f"{TO}/{name}"], check=True).stdout.split()[0] == there
        run = report(cluster)
        assert run["outcome"]["how"] == "finished" and run["hosts"] == "node[01-02]" and len(run["nodes"]) == 2
        again = collect(cluster, "--job", job.number, "--from", LOCAL, TO)
        assert again.returncode == 0 and collected(cluster) == names, again.stderr


def test_a_batch_script_collects_at_its_end(cluster):
    # What would be options of the srun in it, or make a world of it, is not.
    script = f"srun --dp-record={LOCAL} {RANK} pace 100 0 0; {DPCTL} collect --from {LOCAL} {TO}"
    done = cluster.run(["sbatch", "-W", "-N2", "--ntasks-per-node=2", "--exclusive", "--dp-timeout=99", "-o", "/home/alice/out", "--wrap", script], cwd="/home/alice", timeout=60,
                       env={"SLURM_DP_WORLD": "auto", "SLURM_LABELIO": "1", "SLURM_DP_RECORD": "/nowhere"})
    said = cluster.run(["cat", "/home/alice/out"]).stdout
    assert done.returncode == 0 and "2 records of job" in said, said
    assert len(report(cluster)["tasks"]) == 4


def test_records_of_a_job_that_is_over_come_in_another_allocation(cluster):
    with Job(cluster) as job:
        pass
    assert lines(collect(cluster, "--job", job.number, "--from", LOCAL, TO)) == [
        f"dpctl: job {job.number} is over (CANCELLED); for its records allocate its nodes again: salloc --nodelist=node[01-02] dpctl collect --job {job.number} ..."]
    done = cluster.run(["salloc", "--quiet", "--nodelist=node[01-02]", DPCTL, "collect", "--job", job.number, "--from", LOCAL, TO], timeout=60)
    assert done.returncode == 0 and len(collected(cluster)) == 2, done.stderr


def test_a_record_that_grew_replaces_what_it_was_and_no_other_file(cluster):
    with Job(cluster) as job:
        assert collect(cluster, "--job", job.number, "--from", LOCAL, TO).returncode == 0
        first, second = (f"{TO}/{name}" for name in collected(cluster))
        whole = cluster.run(["sha256sum", first], check=True).stdout
        cluster.run(f"truncate -s 100 {first} && echo mine >{second}", check=True)
        done = collect(cluster, "--job", job.number, "--from", LOCAL, TO)
        assert done.returncode == 1 and done.stderr == f"dpctl: node02: {second} is there with other bytes, and stays as it is\n", done.stderr
        assert cluster.run(["sha256sum", first], check=True).stdout == whole
        assert cluster.run(["cat", second], check=True).stdout == "mine\n"
        assert len(collected(cluster)) == 2


def test_what_does_not_come_is_named_with_its_node(cluster):
    with Job(cluster) as job:
        words = ("--job", job.number, "--from", LOCAL, TO)
        with planted_on(cluster, "node02", f"mv {LOCAL} {LOCAL}.away", f"mv {LOCAL}.away {LOCAL}"):
            done = collect(cluster, *words)
            assert done.returncode == 1 and done.stderr == f"dpctl: node02: {LOCAL}: No such file or directory\n", done.stderr
            assert done.stdout == f"1 record of job {job.number}, of 1 node (node01), is in {TO}\n"
        cluster.run(["rm", "-rf", TO], check=True)
        with planted_on(cluster, "node01", f"chown root {LOCAL} && chmod 700 {LOCAL}", f"chown alice {LOCAL}"):
            done = collect(cluster, *words)
            assert done.returncode == 1 and done.stderr == f"dpctl: node01: {LOCAL}: Permission denied\n", done.stderr
        for node in cluster.nodes:  # what somebody else put there, and a link, are not the job's
            cluster.node(node, f"for file in {LOCAL}/*; do chown bob $file; ln -s /etc/passwd ${{file%-*}}-$(hostname -s).dprecord; done; true", check=True)
        cluster.run(["rm", "-rf", TO], check=True)
        said = lines(collect(cluster, *words))
        assert len(said) == 3 and all("belongs to another user" in line for line in said[:2]), said
        assert said[2] == f"dpctl: no record of job {job.number} was collected" and collected(cluster) == []
        assert lines(collect(cluster, "--job", job.number, "--from", "/tmp/nowhere", TO)) == [
            "dpctl: node[01-02]: /tmp/nowhere: No such file or directory", f"dpctl: no record of job {job.number} was collected"]
        assert cluster.run(["test", "-e", TO]).returncode == 1


def test_a_place_that_takes_nothing_gets_nothing(cluster):
    with Job(cluster) as job:
        words = ("--job", job.number, "--from", LOCAL)
        for place, why in (("/proc/collected", "No such file or directory"), ("/root/collected", "Permission denied"), ("/etc", "Permission denied"), ("/etc/passwd", "Not a directory")):
            said = lines(collect(cluster, *words, place))
            assert len(said) == 1 and re.fullmatch(rf"dpctl: {place}: {why}", said[0]), said
        cluster.run(["mkdir", TO], check=True)
        with planted_on(cluster, "head", f"mount -t tmpfs -o size=64k,mode=1777 none {TO} && head -c 1M /dev/zero >{TO}/x; true", f"umount {TO}"):
            assert lines(collect(cluster, *words, TO)) == [f"dpctl: {TO}: No space left on device"]
            assert collected(cluster) == ["x"]


def test_a_job_that_cannot_be_asked_is_named(cluster):
    assert lines(collect(cluster, TO)) == ["dpctl: not in a job, and no --job N"]
    assert lines(collect(cluster, "--job", "4000000", "--from", LOCAL, TO)) == [
        "dpctl: Slurm does not know job 4000000 (any more); for its records allocate its nodes again: salloc --nodelist=NODES dpctl collect --job 4000000 ..."]
    said = lines(collect(cluster, "--job", "1", TO))
    assert len(said) == 1 and "plugstack.conf has no record=DIR" in said[0], said
    with Job(cluster) as job:
        for user in ("bob", "root"):
            assert lines(collect(cluster, "--job", job.number, "--from", LOCAL, TO, user=user)) == [
                f"dpctl: job {job.number} is alice's, who alone can start a step in it"]
    for words, why in (((), "to is required"), (("--job", "0", TO), "--job"), (("--job", "x", TO), "--job")):
        done = collect(cluster, *words)
        assert done.returncode == 2 and why in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_ctrl_c_leaves_only_whole_records(cluster):
    with Job(cluster) as job:
        cluster.node("node02", f"head -c 1G /dev/zero >{LOCAL}/{job.number}.9-0123456789abcdef-node02.dprecord && chown alice {LOCAL}/*", check=True)
        process = cluster.popen([DPCTL, "collect", "--job", job.number, "--from", LOCAL, TO])
        coming = until(lambda: cluster.run(f"find {TO}/.collect-* -name '*.9-*' -size +1M").stdout, 20, "the large one is coming")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 1 and err == "dpctl: interrupted; only records that had come as a whole are there\n", err
        assert coming and all(re.fullmatch(NAME, name) and ".9-" not in name for name in collected(cluster)), collected(cluster)


def test_a_node_that_is_gone_does_not_keep_the_others(another_cluster):
    site = another_cluster(nodes=3)
    site.run(["rm", "-rf", TO], check=True)
    job = Job(site, nodes=3)
    site.kill("node02")
    done = collect(site, "--job", job.number, "--from", LOCAL, TO)
    assert done.returncode == 1 and "of 2 nodes (node[01,03])" in done.stdout, (done.stdout, done.stderr)
    assert re.fullmatch(r"dpctl: node02: did not answer to its end: srun: error: .*node02.*\n", done.stderr), done.stderr


def test_a_site_that_records_on_its_nodes_needs_no_directory(another_cluster):
    site = another_cluster(plugstack_args="record=/tmp/%j.%s/%N")
    site.run(["rm", "-rf", TO], check=True)
    with Job(site, record="--dp-world=auto") as job:
        done = collect(site, "--job", job.number, TO)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert report(site)["job"] == int(job.number)
        assert "dpctl collect" in site.run([DPCTL, "report", "--job", job.number]).stderr
