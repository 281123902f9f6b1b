# SPDX-License-Identifier: Apache-2.0
"""The packages, as an administrator meets them: built without a network, clean for lintian and rpmlint, installed into a system that has
nothing but Slurm, off until the one line is there, and gone without a trace; no job and no node is lost on the way."""
import contextlib
import glob
import hashlib
import json
import os
import subprocess
import time

import pytest
from conftest import cluster_name
from localcluster import cleanroot
from localcluster.harness import SCRIPT, VERSION, TestCluster
from localcluster.names import CHECKOUT

pytestmark = [pytest.mark.packages, pytest.mark.long]
PACKAGING = os.path.join(CHECKOUT, "packaging")
PLUGIN = "/usr/lib/x86_64-linux-gnu/slurm-wlm/spank_dp.so"
THE_LINE = "include /usr/share/slurm-dp/plugstack.conf\n"
OURS = ("slurm-dp", "slurm-dp-tools", "slurm-dp-trainer", "libdp0", "libdp-gloo0")


def run(*command, timeout=600, **keywords):
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL, **keywords)
    assert done.returncode == 0, f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout[-5000:]}{done.stderr[-5000:]}"
    return done


def build(kind, folder):
    # Dependencies are installed first; the build has no network. Another Slurm's packages are built in its root, for the headers there.
    there = (SCRIPT, "root", "--slurm", VERSION.number, "--") if VERSION.suite else ()
    run(*there, f"{PACKAGING}/install-dependencies", "build", kind)
    run(*there, "unshare", "--net", f"{PACKAGING}/build-{kind}", "--output", folder, timeout=1800)
    return folder


@pytest.fixture(scope="module")
def debs():
    return build("deb", VERSION.path("deb"))


def deb(folder, name):
    found = glob.glob(os.path.join(folder, f"{name}_*.deb"))
    assert len(found) == 1, found
    return found[0]


class Site:
    """A cluster whose machines are such systems: they share one disk, so what is installed once is installed on each."""

    def __init__(self, root, cluster, debs):
        self.root = root
        self.cluster = cluster
        self._debs = debs

    def apt(self, *words):
        """In the system, with this machine's network, as if before it was started."""
        return run("chroot", self.root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "Acquire::Retries=3", "-y",
                   "--no-install-recommends", *words)

    def install(self, *names):
        os.makedirs(f"{self.root}/packages", exist_ok=True)
        for name in names:
            run("cp", deb(self._debs, name), f"{self.root}/packages/{name}.deb")
        self.apt("install", *(f"/packages/{name}.deb" for name in names))

    def remove(self, *names):
        """On a running machine; → what dpkg said."""
        return self.cluster.node("head", ["dpkg", "--remove", *names], check=True).stderr

    @contextlib.contextmanager
    def line(self, text):
        """In plugstack.conf."""
        file = "/etc/slurm/plugstack.conf"
        self.cluster.node("head", f"printf '%s' '{text}' >{file}", check=True)
        try:
            yield
        finally:
            self.cluster.node("head", f": >{file}", check=True)

    def jobs_run(self):
        """As ever, in srun and sbatch, on every node; → what srun said on the side."""
        direct = self.cluster.run(["srun", "-N2", "-n2", "hostname"], check=True)
        assert sorted(direct.stdout.split()) == ["node01", "node02"]
        self.cluster.run(["sbatch", "-W", "-N2", "-n2", "-o", "/home/alice/out", "--wrap", "srun hostname"], check=True)
        assert sorted(self.cluster.run(["sh", "-c", "grep -x 'node0.' /home/alice/out"]).stdout.split()) == ["node01", "node02"]
        self.cluster.assert_idle()
        return direct.stderr

    def world_runs(self, trainer="dp-trainer"):
        done = self.cluster.run(["srun", "-N2", "--ntasks-per-node=2", "--dp-world=auto", trainer, "--epochs", "1"], cwd="/home/alice", check=True)
        summary = json.loads(done.stdout.splitlines()[-1])
        return summary["world_size"] == 4 and summary["parameters_equal_on_all_ranks"]

    def files(self):
        """Every file, link and folder but what dpkg, apt and ldconfig keep for themselves."""
        found = run("find", self.root, "-xdev", "(", *" -o ".join(f"-path {self.root}/{own}" for own in (
            "var/lib/dpkg", "var/lib/apt", "var/cache", "var/log", "packages", "proc", "sys", "dev", "run", "tmp", "var/lib/slurm-dp-cluster",
            "etc/ld.so.cache")).split(), ")", "-prune", "-o", "-print")
        return set(found.stdout.splitlines())


@pytest.fixture(scope="module")
def site(debs):
    """With Slurm alone, and then with our packages; no line in plugstack.conf."""
    with cleanroot.copy(cluster_name("-packages")) as root, TestCluster(cluster_name("-packages"), root=root) as cluster:
        one = Site(root, cluster, debs)
        one.before = one.files()
        one.apt("update")
        one.install(*OURS)
        yield one


def unknown(done):
    return done.returncode != 0 and "unrecognized option '--dp-world=auto'" in done.stderr


def test_installed_it_is_off(site):
    assert site.jobs_run() == ""
    assert unknown(site.cluster.run(["srun", "-n1", "--dp-world=auto", "hostname"]))


def test_one_line_turns_it_on_for_the_next_step(site):
    with site.line(THE_LINE):
        assert site.world_runs()
        assert site.jobs_run() == ""
        assert "--dp-world=auto|N" in site.cluster.run(["srun", "--help"]).stdout
    assert unknown(site.cluster.run(["srun", "-n1", "--dp-world=auto", "hostname"]))


def test_settings_stand_behind_the_plugin(site):
    with site.line(f"optional {PLUGIN} timeout=7\n"):
        done = site.cluster.run(["srun", "-n1", "--dp-world=auto", "sh", "-c", "echo $DP_TIMEOUT"], check=True)
        assert done.stdout == "7\n"


def test_dpctl_finds_its_daemon(site):
    done = site.cluster.run("dpctl launch -n 3 -- sh -c 'echo $DP_RANK'", cwd="/home/alice", check=True)
    assert sorted(done.stdout.split()) == ["0", "1", "2"]


def test_it_goes_and_comes_while_its_line_stays_and_nobody_notices(site):
    with site.line(THE_LINE):
        step = site.cluster.popen(["srun", "-N2", "-n4", "--dp-world=auto", "sh", "-c", "sleep 5; echo rank $DP_RANK"], cwd="/home/alice")
        end = time.monotonic() + 20
        while sum(process["command"] == "sleep 5" for process in site.cluster.processes()) < 4 and time.monotonic() < end:
            time.sleep(0.05)
        warned = site.remove("slurm-dp", "slurm-dp-tools", "slurm-dp-trainer")
        assert warned == ""
        out, err = step.communicate(timeout=30)
        assert (step.returncode, err) == (0, "") and sorted(out.splitlines()) == [f"rank {n}" for n in range(4)]
        assert site.jobs_run() == ""
        site.install(*OURS)
        assert site.world_runs()


def test_a_forgotten_optional_line_costs_a_complaint_and_no_job(site):
    with site.line(f"optional {PLUGIN}\n"):
        try:
            warned = site.remove("slurm-dp", "slurm-dp-tools")
            assert f"/etc/slurm/plugstack.conf:1:optional {PLUGIN}" in warned and "take this line out" in warned
            said = site.jobs_run()
            assert PLUGIN in said or VERSION.suite, said  # newer Slurms pass it over in silence
        finally:
            site.install("slurm-dp", "slurm-dp-tools")


def test_switched_off_it_is_off_at_once_and_a_job_that_waited_runs_without_a_world(site):
    with site.line(THE_LINE):
        done = site.cluster.run(["sbatch", "--parsable", "--hold", "-N2", "-n2", "--dp-world=2", "-o", "/home/alice/waited", "--wrap",
                                 "srun sh -c 'echo rank=$RANK'"], check=True)
    assert unknown(site.cluster.run(["srun", "-n1", "--dp-world=auto", "hostname"]))
    job = done.stdout.strip()
    site.cluster.run(["scontrol", "release", job], user="root", check=True)
    end = time.monotonic() + 60
    while site.cluster.run(["squeue", "-h", "-j", job]).stdout.strip() and time.monotonic() < end:
        time.sleep(0.2)
    assert site.cluster.run(["cat", "/home/alice/waited"]).stdout == "rank=\nrank=\n"
    site.cluster.assert_idle()


def test_purged_it_leaves_nothing(site):
    assert f"{site.root}{PLUGIN}" in site.files() - site.before
    # What came with them goes, too, although something else may recommend or suggest it (systemd suggests libdw).
    site.apt("purge", "--autoremove", "-o", "APT::AutoRemove::RecommendsImportant=false", "-o", "APT::AutoRemove::SuggestsImportant=false", *OURS)
    try:
        assert site.files() - site.before == set()
        assert site.jobs_run() == ""
    finally:
        site.install(*OURS)


@pytest.mark.native
def test_lintian_has_nothing_to_say(debs):
    changes = glob.glob(os.path.join(debs, "*.changes"))
    assert len(changes) == 1
    done = run("lintian", "--no-cfg", "--fail-on", "error,warning", changes[0])
    assert done.stdout == ""


@pytest.mark.native
def test_from_source_it_works_below_any_prefix(site, tmp_path):
    prefix = "/opt/slurm-dp"
    run("cmake", "-S", CHECKOUT, "-B", str(tmp_path), "-G", "Ninja", f"-DCMAKE_INSTALL_PREFIX={prefix}", "-DDP_TESTS=OFF", "-DDP_CUDA=OFF")
    run("cmake", "--build", str(tmp_path))
    site.remove(*OURS)  # what they depend on stays
    try:
        run("cmake", "--install", str(tmp_path), env={**os.environ, "DESTDIR": site.root})
        with site.line(f"include {prefix}/share/slurm-dp/plugstack.conf\n"):
            assert site.world_runs(f"{prefix}/bin/dp-trainer")
    finally:
        run("rm", "-rf", site.root + prefix)
        site.install(*OURS)


@pytest.fixture(scope="module")
def rpms():
    folder = build("rpm", os.path.join(CHECKOUT, "build/rpm"))
    return sorted(glob.glob(os.path.join(folder, "RPMS/*/*.rpm")))


@pytest.mark.native
def test_rpmlint_has_nothing_to_say(rpms):
    folder = os.path.join(CHECKOUT, "build/rpm")
    done = run("rpmlint", "--config", f"{PACKAGING}/rpm/rpmlint.toml", *rpms, *glob.glob(f"{folder}/SRPMS/*.rpm"), f"{folder}/SPECS/slurm-dp.spec")
    assert "8 packages and 1 specfiles checked; 0 errors, 0 warnings" in done.stdout


@pytest.mark.native
def test_an_rpm_holds_what_the_deb_holds(rpms, debs):
    """But for what the two kinds of system call differently."""
    def of_rpm(name):
        own = [path for path in rpms if os.path.basename(path).startswith(name + "-0") or os.path.basename(path).startswith(name + "-1")]
        assert len(own) == 1, own
        return {os.path.basename(path).removesuffix(".gz") for path in run("rpm", "-qpl", own[0]).stdout.splitlines()}

    def of_deb(name):
        lines = run("dpkg-deb", "--contents", deb(debs, name)).stdout.splitlines()
        return {os.path.basename(line.split(" -> ")[0].split()[-1]).removesuffix(".gz") for line in lines if not line.startswith("d")}

    common = {"changelog.Debian", "copyright"}
    for ours, theirs in (("slurm-dp", "slurm-dp"), ("slurm-dp-tools", "slurm-dp-tools"),
                         ("slurm-dp-exporter", "slurm-dp-exporter"), ("libdp0", "slurm-dp-libs"), ("libdp-gloo0", "slurm-dp-gloo"),
                         ("libdp-dev", "slurm-dp-devel"), ("slurm-dp-trainer", "slurm-dp-trainer")):
        missing = of_deb(ours) - of_rpm(theirs) - common
        assert {name for name in missing if "lintian" not in name and name != ours} == set(), ours


@pytest.mark.native
def test_two_builds_are_equal(debs, tmp_path, monkeypatch):
    monkeypatch.setenv("CCACHE_DISABLE", "1")

    def sums(folder):
        out = {}
        for path in glob.glob(os.path.join(folder, "*.deb")):
            with open(path, "rb") as file:
                out[os.path.basename(path)] = hashlib.sha256(file.read()).hexdigest()
        return out

    first = sums(debs)
    assert len(first) == 14
    assert sums(build("deb", str(tmp_path / "again"))) == first
