# SPDX-License-Identifier: Apache-2.0
"""Slurm's accounting: slurmdbd and the MariaDB behind it, on the head; without them sacct knows nothing of steps."""
import os
import shutil

from .names import HEAD, ClusterError

PROGRAMS = ("mariadb-install-db", "mariadbd", "slurmdbd", "sacct", "sacctmgr")
CONF = ("AccountingStorageType=accounting_storage/slurmdbd", f"AccountingStorageHost={HEAD}")
_SOCKET = "/run/mysqld/mysqld.sock"  # which Debian's client library takes for "localhost"


def slurmdbd_conf(cluster):
    return f"""AuthType=auth/munge
DbdHost={HEAD}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
LogFile={cluster.log('slurmdbd.log')}
PidFile=/run/slurmdbd.pid
"""


def start_command(cluster):
    """For sh, between munge's start and slurmctld's, which asks slurmdbd what is counted before it begins."""
    data, log = os.path.join(cluster.state, "mysql"), cluster.log("mariadb.log")
    database = f"--no-defaults --user=root --datadir={data}"
    return " && ".join((
        f"mariadb-install-db {database} --skip-test-db > {log} 2>&1",
        f"mkdir -p {os.path.dirname(_SOCKET)}",
        f"{{ setsid mariadbd {database} --socket={_SOCKET} --skip-networking >> {log} 2>&1 < /dev/null & }}",
        _until(f"test -S {_SOCKET}", 30),
        "slurmdbd",
        _until("sacctmgr --noheader show cluster", 30),
        f"sacctmgr --immediate --quiet add cluster {cluster.name}"))


def require_programs():
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        raise ClusterError(f"--accounting: {', '.join(missing)} not installed; run: packaging/install-dependencies test")


def _until(command, seconds):
    tries = seconds * 20
    return (f"{{ tries={tries}; until {command} > /dev/null 2>&1; do tries=$((tries - 1)); [ $tries -gt 0 ] || {{ echo '{command}: not within {seconds} s'; exit 1; }}; "
            "sleep 0.05; done; }")
