# SPDX-License-Identifier: Apache-2.0
"""`dpctl exporter`: the metrics of a node's steps, as Prometheus asks for them, and who may read them."""
import contextlib
import os
import re
import subprocess
import time

import pytest
from localcluster.harness import BUILD, SCRIPT

DPCTL = os.path.join(BUILD, "bin/dpctl")
RANK = os.path.join(BUILD, "tests/rank")
AS_BOB = ["setpriv", "--reuid=bob", "--regid=bob", "--clear-groups"]


@contextlib.contextmanager
def exporting(cluster, *words, node="node01", prefix=()):
    """An exporter on the node; what it says at its start, and a function that says what it says afterwards."""
    running = subprocess.Popen([SCRIPT, "node", node, "--", *prefix, DPCTL, "exporter", *words], env=cluster.environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield running.stdout.readline()
    finally:
        cluster.node(node, "pkill -TERM -x dp-exporter")
        running.said, _ = running.communicate(timeout=20)
        print(running.said)


def scrape(cluster, node="node01", *curl):
    done = cluster.node(node, ["curl", "-sS", "--max-time", "20", *(curl or ["http://127.0.0.1:9951/metrics"])])
    assert done.returncode == 0, done
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in done.stdout.splitlines() if not line.startswith("#")}


def of_step(metrics, name, **labels):
    """The values of the samples with this name and these labels."""
    return [value for key, value in metrics.items()
            if key.partition("{")[0] == name and all(f'{label}="{text}"' in key for label, text in labels.items())]


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.2)
    return found


def job_of(cluster, user="alice"):
    return until(lambda: cluster.run(["squeue", "-h", "-o", "%A", "-u", user], check=True).stdout.split())[0]


def test_a_running_step_can_be_read_on_each_of_its_nodes(cluster):
    with exporting(cluster) as said, exporting(cluster, node="node02"):
        assert said == "dpctl exporter: http://127.0.0.1:9951/metrics\n"
        step = cluster.popen(["srun", "-N2", "--ntasks-per-node=2", "-m", "block", "--dp-slow=0", RANK, "pace", "400", "3", "400"])
        job = job_of(cluster)
        seen = until(lambda: (now := scrape(cluster)) and sum(of_step(now, "slurm_dp_rank_seconds_total", spent="compute")) > 1 and now)
        who = {"step": f"{job}.0", "slurm_job": job, "user": "alice"}
        assert of_step(seen, "slurm_dp_ranks", state="hello", **who) == [4], seen
        assert of_step(seen, "slurm_dp_exporter_steps") == [1]
        # Two ranks, one second after the other.
        def scraped():
            begin = time.monotonic()
            now = scrape(cluster)
            return begin, now, time.monotonic()

        before, first, after = scraped()
        time.sleep(3)
        begin, again, end = scraped()
        grown = sum(of_step(again, "slurm_dp_rank_seconds_total")) - sum(of_step(first, "slurm_dp_rank_seconds_total"))
        assert 2 * (begin - after) - 1 < grown < 2 * (end - before) + 1
        assert all(again[key] >= value for key, value in seen.items() if "_total{" in key)
        # The other node knows of its own ranks, and what the broker knows is not there twice.
        other = scrape(cluster, "node02")
        assert of_step(other, "slurm_dp_rank_seconds_total", spent="compute", **who) and not of_step(other, "slurm_dp_ranks"), other
        step.communicate(timeout=60)
        assert step.returncode == 0
        done = until(lambda: (now := scrape(cluster)) and of_step(now, "slurm_dp_exporter_steps") == [0] and now)
        assert of_step(done, "slurm_dp_exporter_ended_steps_total", how="finished") == [1]
        assert of_step(done, "slurm_dp_ranks", state="exited", **who) == [4]
        assert of_step(done, "slurm_dp_startup_seconds_count") == [1]
    cluster.assert_nothing_left()


def test_what_a_step_died_of_is_read_after_its_death(cluster):
    with exporting(cluster):
        step = cluster.popen(["srun", "-N2", "--ntasks-per-node=2", "--dp-world=auto", RANK, "meet", "600"])
        for _ in range(4):
            assert " met" in step.stdout.readline()
        until(lambda: of_step(scrape(cluster), "slurm_dp_ranks", state="hello") == [4])
        cluster.node("node02", "pkill -KILL -x rank -n")
        step.communicate(timeout=60)
        seen = until(lambda: (now := scrape(cluster)) and of_step(now, "slurm_dp_exporter_steps") == [0] and now)
    assert of_step(seen, "slurm_dp_deaths_total", kind="signal") == [1], seen
    assert sum(of_step(seen, "slurm_dp_deaths_total")) == 1
    assert of_step(seen, "slurm_dp_ending") == [1] and of_step(seen, "slurm_dp_exporter_ended_steps_total", how="failed") == [1]
    cluster.assert_idle()
    cluster.assert_nothing_left()


def test_a_restart_counts(cluster):
    with exporting(cluster):
        step = cluster.popen(["srun", "-N2", "--ntasks-per-node=2", "--no-kill", "--dp-on-failure=restart", RANK, "meet", "8"])
        for _ in range(4):
            assert " met" in step.stdout.readline()
        cluster.node("node02", "pkill -KILL -x rank -n")
        seen = until(lambda: (now := scrape(cluster)) and of_step(now, "slurm_dp_restarts_total") == [1] and now)
        assert of_step(seen, "slurm_dp_generation") == [1] and of_step(seen, "slurm_dp_deaths_total", kind="signal") == [1]
        step.communicate(timeout=60)
    assert step.returncode == 0
    cluster.assert_nothing_left()


def test_the_sites_user_may_read_and_no_other_one(another_cluster):
    site = another_cluster(plugstack_args="exporter=bob")
    step = site.popen(["srun", "-N1", "-n2", "--dp-world=auto", RANK, "meet", "60"])
    assert " met" in step.stdout.readline()
    with exporting(site, prefix=AS_BOB):
        seen = until(lambda: (now := scrape(site)) and of_step(now, "slurm_dp_ranks", state="hello") == [2] and now)
        assert of_step(seen, "slurm_dp_exporter_unreachable_steps") == [0]
    as_nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    with exporting(site, prefix=as_nobody):
        seen = until(lambda: (now := scrape(site)) and of_step(now, "slurm_dp_exporter_unreachable_steps") == [1] and now)
        assert not of_step(seen, "slurm_dp_ranks"), seen
    site.run(["scancel", "-u", "alice"], check=True)
    step.communicate(timeout=60)


def test_an_exporter_that_may_read_nothing_says_so_once(cluster):
    step = cluster.popen(["srun", "-N1", "-n1", "--dp-world=auto", RANK, "meet", "8"])
    assert " met" in step.stdout.readline()
    job = job_of(cluster)
    running = subprocess.Popen([SCRIPT, "node", "node01", "--", *AS_BOB, DPCTL, "exporter"], env=cluster.environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "http" in running.stdout.readline()
    until(lambda: of_step(scrape(cluster), "slurm_dp_exporter_unreachable_steps") == [1])
    cluster.node("node01", "pkill -TERM -x dp-exporter")
    assert running.communicate(timeout=20)[1] == \
        f"slurm-dp: step {job}.0 of alice lets user bob read nothing; run the exporter as root, or set exporter=bob in plugstack.conf\n"
    assert running.returncode == 0
    step.communicate(timeout=60)
    assert step.returncode == 0


def test_an_unknown_user_of_the_site_hurts_no_step(another_cluster):
    site = another_cluster(nodes=1, plugstack_args="exporter=nobody-here")
    done = site.run(["srun", "-n2", "--dp-world=auto", RANK, "meet", "1"])
    assert done.returncode == 0 and done.stdout.count(" met") == 2, done
    told = "plugstack.conf: exporter=nobody-here: this node has no such user, so dpctl exporter shows no step"
    assert told in site.log("slurmd-node01.log"), site.log("slurmd-node01.log")[-2000:]
    assert told not in done.stderr, "it is the administrator's"


STRANGER = """
import os, socket, time
many = []
for i in range(300):
    one = socket.socket(socket.AF_UNIX)
    one.bind(f"\\0slurm-dp-metrics/{1000000 + i}.0")
    one.listen()
    many.append(one)
end = time.time() + 120
for one in many:
    one.setblocking(False)
held = []
while time.time() < end:
    for one in many:
        try:
            conn, _ = one.accept()
            conn.sendall(b"\\0\\0\\0\\x04" + b"\\x0a\\x02\\x05\\x06")
            held.append(conn)
        except OSError:
            pass
    time.sleep(0.05)
"""


def test_a_stranger_with_many_names_takes_only_their_place(cluster):
    stranger = cluster.popen(["srun", "-N1", "-n1", "-w", "node01", "--overcommit", "/usr/bin/python3", "-c", STRANGER], user="bob")
    with exporting(cluster):
        until(lambda: of_step(scrape(cluster), "slurm_dp_exporter_unreachable_steps") and
              of_step(scrape(cluster), "slurm_dp_exporter_steps")[0] >= 60)
        step = cluster.popen(["srun", "-N1", "-n1", "-w", "node01", "--dp-world=auto", RANK, "meet", "4"])
        assert " met" in step.stdout.readline()
        seen = until(lambda: (now := scrape(cluster)) and of_step(now, "slurm_dp_ranks", user="alice", state="hello") == [1] and now)
        assert of_step(seen, "slurm_dp_exporter_steps")[0] <= 65, "64 of bob's, and alice's"
        assert of_step(seen, "slurm_dp_exporter_unreachable_steps")[0] >= 230
        step.communicate(timeout=60)
    cluster.run(["scancel", "-u", "bob"], user="bob", check=True)
    stranger.communicate(timeout=60)
    cluster.assert_idle()


CERTIFICATES = """
set -e
mkdir -p /run/web && cd /run/web
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.crt
for name in server client; do
    openssl req -newkey rsa:2048 -nodes -subj /CN=$name -addext subjectAltName=IP:$1 -keyout $name.key -out $name.csr
    openssl x509 -req -in $name.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -copy_extensions copy -out $name.crt
done
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=other -keyout other.key -out other.crt
printf 'tls_server_config:\\n  cert_file: server.crt\\n  key_file: server.key\\n  client_auth_type: RequireAndVerifyClientCert\\n  client_ca_file: ca.crt\\n' > web.yml
"""


def test_another_machine_needs_a_certificate(cluster):
    address = cluster.node("node01", "hostname -I", check=True).stdout.split()[0]
    cluster.node("node01", ["sh", "-c", CERTIFICATES, "sh", address], check=True)
    files = cluster.node("node01", "cd /run/web && tar -c ca.crt client.crt client.key other.crt other.key | base64 -w0", check=True).stdout
    cluster.node("node02", f"mkdir -p /run/web && cd /run/web && echo {files} | base64 -d | tar -x", check=True)
    url = f"https://{address}:9951/metrics"
    with exporting(cluster, f"--listen={address}:9951", "--web-config=/run/web/web.yml") as said:
        assert said == f"dpctl exporter: {url}\n"
        client = ["--cacert", "/run/web/ca.crt", "--cert", "/run/web/client.crt", "--key", "/run/web/client.key"]
        assert of_step(scrape(cluster, "node02", *client, url), "slurm_dp_exporter_build_info") == [1]
        other = ["--cacert", "/run/web/ca.crt", "--cert", "/run/web/other.crt", "--key", "/run/web/other.key"]
        for refused in ([*client[:2], url], [*other, url], [url.replace("https", "http")]):
            done = cluster.node("node02", ["curl", "-sS", "--max-time", "10", *refused])
            assert "slurm_dp" not in done.stdout and done.returncode != 0, done
        # A certificate that is renewed holds within a second; one that is broken does not stop the old one.
        time.sleep(1.1)
        cluster.node("node01", "cd /run/web && cp server.crt good.crt && echo broken > server.crt", check=True)
        assert of_step(scrape(cluster, "node02", *client, url), "slurm_dp_exporter_build_info") == [1]
        time.sleep(1.1)
        cluster.node("node01", "cd /run/web && cp other.crt server.crt && cp other.key server.key", check=True)
        renewed = cluster.node("node02", ["curl", "-sS", "--cacert", "/run/web/other.crt", *client[2:], url, "-k", "-v"])
        assert "CN=other" in renewed.stderr and "slurm_dp" in renewed.stdout, renewed


@pytest.mark.parametrize("words, said", [
    (["--listen=localhost:9951"], r"localhost:9951: not an address and a port; give such as 127.0.0.1:9951 or \[::1\]:9951"),
    (["--listen=0.0.0.0:9951"], r"--listen=0.0.0.0:9951: other machines need a certificate; give --web-config=FILE, or an address of this machine alone, such as 127.0.0.1"),
    (["--listen=192.0.2.1:9951", "--web-config=/nowhere.yml"], r"/nowhere.yml: No such file or directory"),
    (["--web-config=/etc/hostname"], r"/etc/hostname: has no tls_server_config"),
])
def test_bad_input_is_one_line(cluster, words, said):
    done = cluster.node("node01", [DPCTL, "exporter", *words])
    assert done.returncode == 1 and re.fullmatch(rf"dpctl: {said}\n", done.stderr) and done.stdout == "", done


def test_a_port_that_is_taken_is_said(cluster):
    with exporting(cluster):
        done = cluster.node("node01", [DPCTL, "exporter"])
    assert done.stderr == "dpctl: cannot listen on port 9951 of 127.0.0.1: Address already in use; give another one with --listen\n", done
    assert done.returncode == 1
