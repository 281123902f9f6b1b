# SPDX-License-Identifier: Apache-2.0
"""What the tests of unmodified client programs share: they run on the same local cluster as tests/cluster, whose parts are used here."""
import importlib.util
import os
import sys

import pytest

sys.dont_write_bytecode = True  # run as root in somebody's checkout
HERE = os.path.dirname(os.path.realpath(__file__))
CLUSTER_TESTS = os.path.join(os.path.dirname(HERE), "cluster")
sys.path.insert(0, CLUSTER_TESTS)

# By path: two files called conftest cannot be imported by name.
_spec = importlib.util.spec_from_file_location("cluster_conftest", os.path.join(CLUSTER_TESTS, "conftest.py"))
_shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_shared)
from localcluster import versions  # noqa: E402  # found through the path above

pytest_collection_modifyitems = _shared.pytest_collection_modifyitems
pytest_configure = _shared.pytest_configure
pytest_runtest_makereport = _shared.pytest_runtest_makereport


@pytest.fixture(scope="session")
def cluster():
    """Three nodes, so that a step of two has a neighbour that is no part of it."""
    with _shared.TestCluster(_shared.cluster_name(), nodes=3) as up:
        if versions.tested().suite:
            up.environment["USE_LIBUV"] = "0"  # as Debian's PyTorch from 2.4 on, which has none, asks its users to
        yield up


@pytest.fixture(scope="session")
def programs():
    """The folder of the client programs; the same path on every node."""
    return os.path.join(HERE, "programs")
