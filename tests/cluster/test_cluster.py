# SPDX-License-Identifier: Apache-2.0
"""The local cluster itself: that it is a Slurm as the other tests need one."""
import collections
import glob
import os
import re
import signal
import subprocess
import time

import pytest
from conftest import cluster_name
from localcluster.harness import SCRIPT, Left, TestCluster, until
from localcluster.names import BASE, CHECKOUT

# Connects and says "reached" or the error's name; a closed port would be reached all the same (ConnectionRefusedError).
REACH = """import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=1)
    print("reached")
except OSError as error:
    print(type(error).__name__)
"""


def reach(cluster, here, there):
    port = "6817" if there == "head" else "6818"
    return cluster.node(here, ["/usr/bin/python3", "-c", REACH, there, port], check=True).stdout.strip()


def test_a_step_runs_on_both_nodes_as_the_ordinary_user(cluster):
    done = cluster.run("srun -N2 sh -c 'echo $(hostname) $(id -un) $(id -u)'", check=True)
    assert sorted(done.stdout.split("\n")) == ["", "node01 alice 1001", "node02 alice 1001"]
    done = cluster.run("srun -N2 sh -c 'echo $(hostname) $(id -un) $(id -u)'", user="bob", check=True)
    assert sorted(done.stdout.split("\n")) == ["", "node01 bob 1002", "node02 bob 1002"]


def test_a_batch_job_runs_to_its_end(cluster):
    cluster.run("sbatch -N2 -o /home/alice/batch.out --wrap 'srun hostname && echo done'", check=True, cwd="/home/alice")
    deadline = time.monotonic() + 10
    text = ""
    while "done" not in text:
        assert time.monotonic() < deadline, text
        time.sleep(0.1)
        if os.path.exists(cluster.host_path("/home/alice/batch.out")):
            with open(cluster.host_path("/home/alice/batch.out"), encoding="utf-8") as out:
                text = out.read()
    assert sorted(text.split()) == ["done", "node01", "node02"]
    cluster.assert_idle()


def test_exit_codes_input_and_output_pass_through(cluster):
    assert cluster.run("exit 7").returncode == 7
    assert cluster.run("kill -TERM $$").returncode == 128 + signal.SIGTERM
    done = cluster.run("srun -N1 cat; echo err >&2", input="through srun\n")
    assert (done.stdout, done.stderr) == ("through srun\n", "err\n")
    assert cluster.run(["no-such-program"]).returncode == 127


def test_a_signal_to_exec_reaches_the_command_once(cluster):
    code = "trap 'echo got INT' INT; echo ready; n=0; while [ $n -lt 20 ]; do sleep 0.05; n=$((n+1)); done"
    running = cluster.popen(code)
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGINT)
    assert running.communicate(timeout=20)[0] == "got INT\n"


def test_a_command_goes_with_a_front_end_that_is_killed(cluster):
    running = cluster.popen("echo ready; exec sleep 987")
    assert running.stdout.readline() == "ready\n"

    def sleeping():
        return any("sleep 987" in p["command"] for p in cluster.processes(["head"]))

    until(sleeping, 5, "sleep runs")
    running.kill()
    running.wait()
    until(lambda: not sleeping(), 2, "sleep went with its front end")


def test_a_gpu_that_the_step_does_not_own_is_forbidden(cluster):
    done = cluster.run("srun -N1 --gres=gpu:1 sh -c 'for n in 0 1 2 3; do LANG=C cat /dev/gpu$n; done'")
    errors = sorted(re.findall(r"/dev/gpu\d: (.*)", done.stderr))
    # The allowed one has no driver behind it (ENXIO); the others may not even be opened (EPERM).
    assert errors == ["No such device or address"] + 3 * ["Operation not permitted"]
    assert cluster.run("srun -N1 sh -c 'echo > /dev/null'").returncode == 0


def test_gres_without_a_plugin_have_indices(cluster):
    done = cluster.run("srun -N2 --ntasks-per-node=1 --gres=gpu:1,rdu:2,tile:8 scontrol show job -d $SLURM_JOB_ID", check=True)
    assert "gpu:1(IDX:0)" in done.stdout
    assert re.search(r"rdu:2\(IDX:\d-\d\)", done.stdout), done.stdout
    assert re.search(r"tile:8\(IDX:\d+-\d+\)", done.stdout), done.stdout


@pytest.mark.parametrize("mode", [0o755, 0o700])
@pytest.mark.parametrize("place", ["/tmp", "/root", "/run"])
def test_the_current_directory_is_at_its_path_everywhere(cluster, place, mode):
    folder = os.path.join(place, f"slurm-dp-test-{os.getpid()}", "inner")
    os.makedirs(folder)
    try:
        os.chmod(folder, mode)
        for word in ("one", "two"):  # the second one is made after the folder is known to the nodes
            with open(os.path.join(folder, word), "w", encoding="ascii") as out:
                out.write(word)
            done = subprocess.run([SCRIPT, "exec", "--", "srun", "-N2", "--ntasks-per-node=1", "sh", "-c", f"pwd; cat {word}; echo"],
                                  cwd=folder, env=cluster.environment, capture_output=True, text=True, timeout=60, check=False)
            assert sorted(done.stdout.split()) == sorted(2 * [folder, word]), done.stderr
    finally:
        subprocess.run(["rm", "-rf", os.path.dirname(folder)], check=True)


def test_the_checkout_is_at_its_path_everywhere(cluster):
    script = os.path.join(CHECKOUT, "tests/cluster/cluster")
    expected = subprocess.run(["cksum", script], capture_output=True, text=True, check=True).stdout
    done = cluster.run(["srun", "-N2", "--ntasks-per-node=1", "cksum", script], check=True, cwd="/home/alice")
    assert done.stdout == 2 * expected


def test_homes_are_shared_and_the_rest_is_each_nodes_own(cluster):
    cluster.run("srun -N2 --ntasks-per-node=1 sh -c 'for d in /tmp /dev/shm /var/tmp $HOME; do echo > $d/own-$(hostname); done'", check=True)
    for node in cluster.nodes:
        for folder in ("/tmp", "/dev/shm", "/var/tmp"):
            assert cluster.node(node, f"ls {folder} | grep own-").stdout.split() == [f"own-{node}"], folder
        assert cluster.node(node, "ls /home/alice | grep own-").stdout.split() == ["own-node01", "own-node02"]
    assert not glob.glob("/tmp/own-*")
    assert not os.path.exists("/home/alice")


def test_two_users_share_the_nodes(cluster):
    one = cluster.popen("srun -N2 --ntasks-per-node=4 sleep 30", user="alice")
    two = cluster.popen("srun -N2 --ntasks-per-node=4 sleep 30", user="bob")
    try:
        wanted = {(node, uid): 4 for node in cluster.nodes for uid in (1001, 1002)}

        def sleeping():
            return collections.Counter((p["node"], p["uid"]) for p in cluster.processes() if p["command"].endswith("sleep 30"))

        until(lambda: sleeping() == wanted, 10, f"{wanted}")
        with pytest.raises(Left, match="node01: .*sleep 30"):
            cluster.assert_nothing_left(deadline=0)
        with pytest.raises(Left, match="node02"):
            cluster.assert_idle(deadline=0)
    finally:
        cluster.run("scancel --user=alice; scancel --user=bob", user="root")
        one.communicate(timeout=30)
        two.communicate(timeout=30)
    cluster.assert_nothing_left()
    cluster.assert_idle()


def test_a_drained_node_is_not_idle(cluster):
    cluster.run("scontrol update nodename=node02 state=drain reason=test", user="root", check=True)
    try:
        with pytest.raises(Left, match="drained"):
            cluster.assert_idle(deadline=0.5)
    finally:
        cluster.run("scontrol update nodename=node02 state=resume", user="root", check=True)
    cluster.assert_idle()


def test_a_node_that_is_cut_off_reaches_nobody_until_it_is_healed(cluster):
    assert reach(cluster, "node01", "node02") == "reached"
    cluster.cut("node01")
    try:
        for here, there in (("node01", "node02"), ("node02", "node01"), ("node01", "head"), ("head", "node01")):
            assert reach(cluster, here, there) == "TimeoutError", f"from {here} to {there}"
        assert reach(cluster, "node02", "head") == "reached"
    finally:
        cluster.heal("node01")
    assert reach(cluster, "node01", "node02") == "reached"
    assert reach(cluster, "head", "node01") == "reached"


def test_two_nodes_cut_from_each_other_still_reach_the_head(cluster):
    with cluster.cut_off("node01", "node02"):
        assert reach(cluster, "node01", "node02") == "TimeoutError"
        assert reach(cluster, "node02", "node01") == "TimeoutError"
        assert reach(cluster, "node01", "head") == "reached"
        assert reach(cluster, "head", "node02") == "reached"
        assert cluster.run("srun -N2 true").returncode == 0
    assert reach(cluster, "node01", "node02") == "reached"
    assert reach(cluster, "node02", "node01") == "reached"


def test_a_cut_breaks_no_connection_that_is_open(cluster):
    # Silence, not a reset: what was sent meanwhile arrives after the cut is healed.
    running = cluster.popen("srun -N1 -w node02 sh -c 'echo before; while [ ! -e /home/alice/go ]; do sleep 0.1; done; echo after'")
    try:
        assert running.stdout.readline() == "before\n"
        with cluster.cut_off("node02"):
            with open(cluster.host_path("/home/alice/go"), "w", encoding="ascii"):
                pass
            time.sleep(1)
            assert running.poll() is None
        out, err = running.communicate(timeout=30)
        assert (out, running.returncode) == ("after\n", 0), err
    finally:
        os.unlink(cluster.host_path("/home/alice/go"))
    cluster.assert_idle()


def test_a_killed_node_is_gone_at_once_and_can_be_started_again(cluster):
    # A connection from the head to the node: a machine without power does not close it.
    code = "import socket; s = socket.create_connection(('node02', 6818)); print('open', flush=True); s.settimeout(1.5); s.recv(1)"
    watcher = cluster.popen(["/usr/bin/python3", "-c", code], user="root")
    assert watcher.stdout.readline() == "open\n"
    running = cluster.popen(["srun", "-N2", "--ntasks-per-node=1", "sh", "-c", "echo $(hostname); exec sleep 300"])
    assert sorted([running.stdout.readline(), running.stdout.readline()]) == ["node01\n", "node02\n"]
    try:
        until(lambda: [p for p in cluster.processes(["node02"]) if p["command"] == "sleep 300"], 5, "node02's task sleeps")
        cluster.kill("node02")
        assert cluster.processes(["node02"], everyone=True) == []
        assert cluster.node("node02", "true").returncode != 0
        assert "is not running" in cluster.node("node02", "true").stderr
        assert "TimeoutError" in watcher.communicate(timeout=10)[1]
        assert running.poll() is None, "srun was told of the death, as by a connection that was closed"
    finally:
        cluster.run("scancel --user=alice", user="root")
        cluster.heal("node02")
        running.kill()  # by itself it waits KillWait (30 s) for the node's answer
        running.communicate(timeout=10)
    cluster.assert_idle(deadline=20)
    assert sorted(cluster.run("srun -N2 hostname", check=True).stdout.split()) == ["node01", "node02"]


def test_status_names_every_machine(cluster):
    with cluster.cut_off("node01"):
        text = cluster.script("status").stdout
        assert re.search(r"^node01 .*cut$", text, re.M), text
        assert re.search(r"^node02 .*connected$", text, re.M), text
        assert re.search(r"^head ", text, re.M), text


def test_up_on_a_running_cluster_says_what_to_do(cluster):
    done = cluster.script("up", check=False)
    assert done.returncode == 1
    assert "is up already" in done.stderr and "down" in done.stderr
    assert cluster.run("true").returncode == 0


@pytest.mark.parametrize("words, said", [
    (["up", "--nodes", "0"], "--nodes 0"),
    (["up", "--slurm", "19.05"], "22.05, 24.11, 26.05"),
    (["up", "--plugin", "/nonexistent/spank_dp.so"], "no such file"),
    (["exec", "--", "true"], "no cluster"),
    (["node", "node01", "--", "true"], "no cluster"),
    (["exec", "true"], "no command given"),
    (["frobnicate"], "no verb frobnicate"),
])
def test_what_cannot_work_is_one_clear_line(words, said):
    done = TestCluster(cluster_name("-no")).script(*words, check=False)
    assert done.returncode != 0
    assert said in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not os.path.exists(os.path.join(BASE, cluster_name("-no")))


def test_an_unknown_node_or_user_is_named(cluster):
    for words in (["node", "node77", "--", "true"], ["cut", "node77"], ["kill", "node77"], ["heal", "node77"]):
        done = cluster.script(*words, check=False)
        assert done.returncode == 1 and "node77" in done.stderr and "node01" in done.stderr, done.stderr
    done = cluster.run("true", user="carol")
    assert done.returncode != 0 and "carol" in done.stderr and "alice" in done.stderr


def test_the_plugin_named_to_up_is_in_plugstack_with_its_arguments(another_cluster, tmp_path):
    plugin = tmp_path / "lib" / "spank_dp.so"
    plugin.parent.mkdir()
    plugin.write_bytes(b"")
    other = another_cluster(plugin=str(plugin), plugstack_args="port=1 verbose")
    line = f"optional {plugin} daemon={tmp_path}/bin/dp-rendezvousd port=1 verbose\n"
    assert other.node("node02", "cat /etc/slurm/plugstack.conf", check=True).stdout == line
    # An ordinary user finds it, although pytest's folders are closed to him.
    assert other.run(["srun", "-N2", "--ntasks-per-node=1", "ls", str(plugin)], cwd="/home/alice").stdout == f"{plugin}\n" * 2
