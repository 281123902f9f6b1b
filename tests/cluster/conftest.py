# SPDX-License-Identifier: Apache-2.0
"""What the tests on the local cluster share: `cluster` is a Slurm of two nodes with the plugin, for the whole run of pytest."""
import contextlib
import os
import shutil
import signal
import subprocess
import sys

import pytest

sys.dont_write_bytecode = True  # run as root in somebody's checkout
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

from localcluster.harness import ACCOUNTING, VERSION, TestCluster  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "since(version): for that Slurm and later ones; not collected for others")
    config.addinivalue_line("markers", "essential: one of the few that CI also runs on the other Slurms")
    config.addinivalue_line("markers", "long: left out of what CI runs by default")
    config.addinivalue_line("markers", "packages: of the packages")
    config.addinivalue_line("markers", "native: not collected for a Slurm in a root of its own")
    # Ended like by Ctrl-C, so that the cluster is taken down. pytest-xdist's workers are ended by their pytest, and may not be in a main thread.
    if "PYTEST_XDIST_WORKER" not in os.environ:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        # A shell's background job ignores it, and so would all that tests start.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def cluster_name(suffix=""):
    # tests/run sets it, so that it can clear up after a pytest that was killed; else each run of pytest has its own.
    # Each of pytest-xdist's workers has a cluster of its own.
    return (os.environ.get("DP_TEST_CLUSTER") or f"test-{os.getpid()}") + os.environ.get("PYTEST_XDIST_WORKER", "") + suffix


def pytest_collection_modifyitems(config, items):
    reason = None
    if os.geteuid() != 0:
        reason = "only root can make the local cluster"
    elif not VERSION.suite and not shutil.which("slurmctld"):
        reason = "Slurm is not installed; run packaging/install-dependencies run"
    left_out = [item for item in items if any(VERSION.before(mark.args[0]) for mark in item.iter_markers("since"))
                or item.get_closest_marker("native") and VERSION.suite]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    if reason:
        raise pytest.UsageError(f"the cluster tests cannot run: {reason}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """What a failed test left running must not fail the tests behind it, too."""
    outcome = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if call.when != "call" or not cluster or not outcome.get_result().failed:
        return
    try:
        print("\ncancelled after the failure:", cluster.run("squeue -h; squeue -h -o %A | xargs -r scancel", user="root").stdout)
        cluster.assert_idle(deadline=40)
    except (AssertionError, subprocess.SubprocessError) as left:
        print(left)


@contextlib.contextmanager
def planted_on(cluster, node, plant, undo):
    """A fault on one node: two lines of shell as root there, one that makes it and one that mends it."""
    cluster.node(node, plant, check=True)
    try:
        yield
    finally:
        cluster.node(node, undo, check=True)


@pytest.fixture(scope="session")
def plugin():
    """Path of the plugin that the cluster loads, or None where it is not built."""
    path = VERSION.path("lib/spank_dp.so")
    return path if os.path.exists(path) else None


@pytest.fixture(scope="session")
def cluster():
    """Two nodes, up for the whole session. See localcluster/harness.py for what it can do."""
    with TestCluster(cluster_name(), accounting=ACCOUNTING) as up:
        yield up


@pytest.fixture(scope="module")
def one_step_each(cluster):
    """Each program in a job of the module's tests is one step in Slurm's accounting, however often its ranks began."""
    first = cluster.next_job()
    yield
    if cluster.accounting:
        cluster.assert_one_step_each(first)
    else:
        print("accounting was not checked: clusters of this Slurm have none here")


@pytest.fixture
def another_cluster():
    """A function that starts one more cluster: another_cluster(nodes=2, plugstack_args="…"); taken down after the test. In one with
    accounting=True a program in a job is one step in the accounts."""
    started = []

    def start(**keywords):
        one = TestCluster(cluster_name(f"-{len(started) + 2}"), **keywords)
        started.append(one)
        return one.up()

    yield start
    try:
        for one in started:
            if one.accounting:
                one.assert_one_step_each(1)
    finally:
        for one in started:
            one.down()
