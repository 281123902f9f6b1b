# SPDX-License-Identifier: Apache-2.0
"""--dp-nccl-debug: each rank's NCCL has a file of its own, and the line about a death or a hang is followed by its last warning."""
import os
import re

import pytest
from localcluster.harness import BUILD

RANK = os.path.join(BUILD, "tests/rank")
WARNED = re.compile(r"slurm-dp: rank (\d+) on (\w+): last NCCL warning \((\S+)\): (.*)")
# What NCCL writes, after a warning of somebody's who lives on.
SAYS = r"""echo "$SLURMD_NODENAME:7:9 [0] NCCL INFO NCCL version 2.27" > $NCCL_DEBUG_FILE
echo "x.cc:1 NCCL WARN rank $RANK has lost its peer" >> $NCCL_DEBUG_FILE
"""
DIES = SAYS + "[ $RANK = 2 ] && while [ $(ls nccl | wc -l) -lt 4 ]; do sleep 0.05; done && exit 3; exec sleep 60"
# NVIDIA's own, which finds no GPU.
REAL = """
import ctypes, sys
nccl = ctypes.CDLL(sys.argv[1])
class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]
id, communicator = Id(), ctypes.c_void_p()
assert nccl.ncclGetUniqueId(ctypes.byref(id)) == 0
raise SystemExit(3 if nccl.ncclCommInitRank(ctypes.byref(communicator), 1, id, 0) != 0 else 0)
"""


def start(cluster, option, *program, options=(), nodes=2, tasks=2):
    return cluster.run(["srun", f"-N{nodes}", f"--ntasks-per-node={tasks}", "-m", "block", option, *options, *program], cwd="/home/alice", timeout=60)


@pytest.fixture
def files(cluster):
    folder = cluster.host_path("/home/alice/nccl")
    yield lambda: sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    cluster.run(["rm", "-rf", "/home/alice/nccl"], check=True)


@pytest.mark.parametrize("options", [(), ("--dp-on-failure=restart", "--dp-restarts=0")])
def test_a_death_is_followed_by_the_last_warning(cluster, files, options):
    cluster.run(["mkdir", "/home/alice/nccl"], check=True)
    done = start(cluster, "--dp-nccl-debug=nccl/%N.%t", "sh", "-c", DIES, options=options)
    assert "slurm-dp: rank 2 on node02 exited with code 3; " in done.stderr, done.stderr
    assert WARNED.findall(done.stderr) == [("2", "node02", "/home/alice/nccl/node02.2", "rank 2 has lost its peer")], done.stderr
    assert files() == ["node01.0", "node01.1", "node02.2", "node02.3"]
    cluster.assert_nothing_left()


def test_a_node_stays_until_its_last_ranks_warning_is_told(cluster, files):
    cluster.run(["mkdir", "/home/alice/nccl"], check=True)
    done = start(cluster, "--dp-nccl-debug=nccl/%t", "sh", "-c", SAYS + "[ $RANK = 1 ] && exit 3; exec sleep 60", tasks=1)
    assert WARNED.findall(done.stderr) == [("1", "node02", "/home/alice/nccl/1", "rank 1 has lost its peer")], done.stderr
    cluster.assert_nothing_left()


def test_each_life_of_a_rank_has_a_file(cluster, files):
    cluster.run(["mkdir", "/home/alice/nccl"], check=True)
    program = SAYS + "while [ $(ls nccl | wc -l) -lt 4 ]; do sleep 0.1; done; [ $RANK$DP_GENERATION = 20 ] && exit 3; [ $DP_GENERATION = 1 ] && exit 0; exec sleep 60"
    done = start(cluster, "--dp-nccl-debug=nccl/%t", "sh", "-c", program, options=("--dp-on-failure=restart",))
    assert done.returncode == 0 and "rank 2 on node02 exited with code 3; generation 1 began" in done.stderr, done.stderr
    assert WARNED.findall(done.stderr) == [("2", "node02", "/home/alice/nccl/2", "rank 2 has lost its peer")], done.stderr
    assert files() == [f"{rank}{life}" for rank in range(4) for life in ("", ".generation1")]


def test_the_nccl_of_a_rank_that_hangs_is_asked(cluster, files):
    cluster.run(["mkdir", "/home/alice/nccl"], check=True)
    done = start(cluster, "--dp-nccl-debug=nccl/%t", "sh", "-c", SAYS + "exec sleep 60", options=("--dp-hang-timeout=2",), nodes=1)
    assert "no progress for " in done.stderr, done.stderr
    assert sorted(rank for rank, *_ in WARNED.findall(done.stderr)) == ["0", "1"], done.stderr


def test_an_earlier_steps_file_says_nothing(cluster, files):
    cluster.run(["mkdir", "/home/alice/nccl"], check=True)
    cluster.run(["sh", "-c", "for i in 0 1 2 3; do echo 'NCCL WARN old' > /home/alice/nccl/$i; touch -d '2 minutes ago' /home/alice/nccl/$i; done"], check=True)
    done = start(cluster, "--dp-nccl-debug=nccl/%t", "sh", "-c", "[ $RANK = 2 ] && exit 3; exec sleep 60")
    assert "slurm-dp: rank 2 on node02 exited with code 3; ending the step" in done.stderr and not WARNED.findall(done.stderr), done.stderr


def test_without_a_folder_nccl_is_left_alone(cluster):
    done = start(cluster, "--dp-nccl-debug=/nonexistent/%t", "sh", "-c", "echo $NCCL_DEBUG-$NCCL_DEBUG_FILE; [ $RANK = 2 ] && exit 3; exec sleep 60")
    for node in ("node01", "node02"):
        assert done.stderr.count(f"slurm-dp: NCCL writes no files on {node} (--dp-nccl-debug): /nonexistent/: No such file or directory") == 1, done.stderr
    assert "slurm-dp: rank 2 on node02 exited with code 3; ending the step" in done.stderr and set(done.stdout.split()) == {"-"}, done.stderr


def test_what_the_ranks_talk_over_is_told_once(cluster, files):
    cluster.run(["mkdir", "/home/alice/nccl"], check=True)
    says = r"""say() { echo "$SLURMD_NODENAME:7:9 [0] NCCL INFO $*" >> $NCCL_DEBUG_FILE; }
: > $NCCL_DEBUG_FILE
say "NET/Socket : Using [0]eth0:10.0.0.$RANK<0>"
say "Channel 00 : 1[1] -> 0[0] via SHM/direct"
say "Channel 00/0 : 1[1] -> 2[0] [send] via NET/Socket/0"
sleep 14; true"""
    done = start(cluster, "--dp-nccl-debug=nccl/%t", "sh", "-c", says)
    told = [line for line in done.stderr.splitlines() if "transports" in line]
    assert told == ["slurm-dp: NCCL's transports: SHM inside nodes, Socket eth0 between nodes"], done.stderr


@pytest.mark.native
def test_nccls_own_words(cluster, files):
    library = re.search(r"libnccl.so.2 => (/\S+)", cluster.run(["ldd", RANK]).stdout)
    if not library:
        pytest.skip("built without NCCL")
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("there is a GPU: this test wants NCCL to find none")
    cluster.run(["mkdir", "/home/alice/nccl"], check=True)
    done = start(cluster, "--dp-nccl-debug=nccl/%t", "/usr/bin/python3", "-c", REAL, library[1], nodes=1, tasks=1)
    (warning,) = WARNED.findall(done.stderr)
    assert warning[:3] == ("0", "node01", "/home/alice/nccl/0") and "cuda" in warning[3].lower(), done.stderr
    assert files() == ["0"]
