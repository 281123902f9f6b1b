# SPDX-License-Identifier: Apache-2.0
"""Debian's Prometheus with our rules, and with each question that our dashboard asks it; then with what `dpctl exporter` says."""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import urllib.request

import pytest
from localcluster.harness import BUILD, until
from localcluster.names import CHECKOUT
from made_up_metrics import MadeUpExporter, page_of
from prometheus_server import Prometheus, example, free_port

pytestmark = pytest.mark.native  # nothing of Slurm's is in it

FOLDER = pathlib.Path(CHECKOUT, "packaging/prometheus")
RULES = FOLDER / "slurm-dp.rules.yml"
DASHBOARD = json.loads(pathlib.Path(CHECKOUT, "packaging/grafana/slurm-dp.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
DPCTL = os.path.join(BUILD, "bin/dpctl")
DEADLINE = 40
# What a rule says only where there is nothing.
OF_ABSENCE = {"SlurmDpExporterAbsent"}


def promtool(*words, text=None):
    done = subprocess.run(["promtool", *words], input=text, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def scraping(targets):
    """The example of a scrape configuration, for these targets of this machine, without TLS, and quickly."""
    configuration = example(FOLDER / "scrape.example.yml")
    (job,) = configuration["scrape_configs"]
    del job["scheme"], job["tls_config"]
    job["static_configs"][0]["targets"] = targets
    job["scrape_interval"] = "500ms"
    return {"global": {"evaluation_interval": "500ms"}, "rule_files": [str(RULES)], "scrape_configs": [job]}


@pytest.fixture(scope="module")
def prometheus():
    """It scrapes two nodes that are made up, and one that is down."""
    with MadeUpExporter("node01") as one, MadeUpExporter("node02") as two, \
            Prometheus(scraping([one.address, two.address, f"127.0.0.1:{free_port()}"])) as server:
        yield server


# How Grafana fills in a variable with these values, where it is in a pattern.
CHOICES = {
    "everything": {"cluster": ".*", "instance": ".*", "user": ".*", "job": ".*"},
    "alice's job": {"cluster": "mycluster", "instance": ".*", "user": "alice", "job": "12"},
    "both jobs": {"cluster": "mycluster", "instance": "127[.]0[.]0[.]1:.*", "user": "(alice|bob)", "job": "(12|13)"},
}


def filled_in(query, choice):
    for name, value in {**choice, "__rate_interval": "5s"}.items():
        query = query.replace(f"${name}", value)
    assert not re.search(r"\$[a-z_{]", query), query
    return query


def test_promtool_accepts_the_rules():
    assert "rules found" in promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))


def test_promtool_accepts_the_example_of_a_configuration():
    # Without the certificates, which are the site's.
    assert "SUCCESS" in promtool("check", "config", "--syntax-only", str(FOLDER / "scrape.example.yml"))


def test_the_rules_do_what_their_tests_say():
    assert "SUCCESS" in promtool("test", "rules", str(FOLDER / "slurm-dp.rules.test.yml"))


def test_every_rule_has_its_tests():
    """An alert fires in one, and does not in another; a recorded number is compared in one."""
    rules = [rule for group in example(RULES)["groups"] for rule in group["rules"]]
    tests = example(FOLDER / "slurm-dp.rules.test.yml")["tests"]
    outcomes = {(case["alertname"], bool(case["exp_alerts"])) for test in tests for case in test.get("alert_rule_test", [])}
    compared = " ".join(case["expr"] for test in tests for case in test.get("promql_expr_test", []) if case["exp_samples"])
    silent_elsewhere = {rule["alert"] for rule in rules if "alert" in rule and (rule["alert"], False) in outcomes}
    assert silent_elsewhere == {rule["alert"] for rule in rules if "alert" in rule}
    assert {rule["alert"] for rule in rules if "alert" in rule and (rule["alert"], True) in outcomes} == silent_elsewhere
    for rule in rules:
        assert "alert" in rule or rule["record"] in compared
        # Whoever is woken knows whose step it is, and what to do.
        if "step" in rule.get("labels", {}).get("slurm_job", ""):
            assert all(f".Labels.{name} " in rule["annotations"]["summary"] for name in ("step", "user"))
            assert "dpctl" in rule["annotations"]["description"] or "srun" in rule["annotations"]["description"]


def test_prometheus_runs_every_rule(prometheus):
    def evaluated():
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        return rules if rules and all(rule["health"] != "unknown" for rule in rules) else None

    rules = until(evaluated, DEADLINE, "all rules are evaluated")
    assert len(rules) == sum(len(group["rules"]) for group in example(RULES)["groups"])
    for rule in rules:
        assert (rule["health"], rule.get("lastError", "")) == ("ok", ""), rule
        if rule["name"] in OF_ABSENCE:
            assert prometheus.query(rule["query"]) == []
        else:
            until(lambda of=rule: prometheus.query(of["query"]), DEADLINE, f"{rule['name']} has data: {rule['query']}")


def test_everything_that_goes_wrong_makes_an_alert(prometheus):
    expected = {rule["alert"] for group in example(RULES)["groups"] for rule in group["rules"] if "alert" in rule} - OF_ABSENCE

    def raised():
        return expected <= {alert["labels"]["alertname"] for alert in prometheus.get("alerts")["alerts"]}

    until(raised, DEADLINE, f"pending or firing: {sorted(expected)}")
    alerts = prometheus.get("alerts")["alerts"]
    hang = [alert for alert in alerts if alert["labels"]["alertname"] == "SlurmDpHang" and alert["labels"]["step"] == "12.0"]
    assert [alert["labels"]["slurm_job"] for alert in hang] == ["12"]
    for alert in alerts:
        assert "<" not in alert["annotations"]["summary"], alert  # "<no value>", "<error expanding template …>"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_every_panel_has_data(prometheus, panel):
    for target in panel["targets"]:
        ask = prometheus.query if target.get("instant") or panel["type"] == "stat" else prometheus.query_range
        # The 0 that is shown where there is nothing would hide that there never is anything.
        question = target["expr"].removesuffix(" or vector(0)")
        for choice in CHOICES.values():
            query = filled_in(question, choice)
            until(lambda of=query: ask(of), DEADLINE, f"data for {query}")
        assert ask(filled_in(target["expr"], CHOICES["everything"]))


def test_the_dashboards_variables_have_values(prometheus):
    found = {}
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] != "query":
            continue
        series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
        match = filled_in(series, CHOICES["everything"])
        until(lambda of=match: prometheus.query(of), DEADLINE, f"data for {match}")
        pattern = re.compile(variable["regex"].strip("/") or "(.*)")
        found[variable["name"]] = {pattern.match(one.get(label, ""))[1] for one in prometheus.get("series", **{"match[]": match})}
    assert len(found.pop("instance")) == 2
    assert found == {"cluster": {"mycluster"}, "user": {"alice", "bob"}, "job": {"12", "13"}}


def test_two_nodes_make_one_step(prometheus):
    """The broker's node has most of it, each node its own tasks' time."""
    def goodput():
        return {one["metric"]["step"]: float(one["value"][1]) for one in prometheus.query("step:slurm_dp_goodput:ratio_rate5m")}

    until(lambda: len(goodput()) == 2, DEADLINE, "goodput of both steps")
    until(lambda: abs(goodput()["12.0"] - 12 / 21) < 0.02 and abs(goodput()["13.0"] - 2 / 11) < 0.02, DEADLINE, "12 of 21 s, and 2 of 11 s")
    ranks = prometheus.query('sum by (step) (slurm_dp_ranks{state="hello"})')
    assert {one["metric"]["step"]: one["value"][1] for one in ranks} == {"12.0": "3", "13.0": "3"}


def test_the_dashboard_is_one_that_grafana_imports():
    """The shape of it: Grafana itself is not in Debian."""
    assert DASHBOARD["schemaVersion"] >= 36 and DASHBOARD["id"] is None
    assert [one["name"] for one in DASHBOARD["__inputs"]] == ["DS_PROMETHEUS"]
    identifiers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(identifiers)) == len(identifiers)
    taken = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
    known = {one["name"] for one in DASHBOARD["templating"]["list"]} | {"__rate_interval"}
    used_types = {panel["type"] for panel in PANELS}
    assert used_types == {one["id"] for one in DASHBOARD["__requires"] if one["type"] == "panel"}
    for panel in PANELS:
        assert panel["description"].endswith(".") and panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        for one in (panel, *panel["targets"]):
            assert one["datasource"] == {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
        for target in panel["targets"]:
            assert set(re.findall(r"\$([a-z_]+)", target["expr"])) <= known


def families(page):
    return {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE ")}


def test_the_guides_table_has_every_metric_and_no_other():
    guide = pathlib.Path(CHECKOUT, "packaging/ADMIN.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(slurm_dp_\w+)", guide, re.MULTILINE)) == families(page_of("node01", 100))


def test_the_dashboard_shows_every_metric():
    shown = " ".join(target["expr"] for panel in PANELS for target in panel["targets"])
    recorded = " ".join(rule["expr"] for group in example(RULES)["groups"] for rule in group["rules"] if "record" in rule)
    assert {name for name in families(page_of("node01", 100)) if name not in shown + recorded} == set()


def test_promtool_accepts_the_made_up_page():
    for node in ("node01", "node02"):
        promtool("check", "metrics", text=page_of(node, 100))


# What follows is about the real exporter.

def has_exporter():
    return os.path.exists(DPCTL) and subprocess.run([DPCTL, "exporter", "--help"], capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def real_exporter():
    """On this machine, whatever steps it has; → its address."""
    if not has_exporter():
        pytest.skip("this dpctl has no exporter")
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen([DPCTL, "exporter", "--listen", address], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        assert address in process.stdout.readline()
        yield address
    finally:
        process.terminate()
        process.communicate(timeout=10)


def page_at(address, accept="text/plain"):
    with urllib.request.urlopen(urllib.request.Request(f"http://{address}/metrics", headers={"Accept": accept}), timeout=10) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


def test_promtool_accepts_what_the_exporter_says():
    with real_exporter() as address:
        page, kind = page_at(address)
        assert kind.startswith("text/plain; version=0.0.4"), kind
        promtool("check", "metrics", text=page)
        # All that there may be, if no step is here; the guide and the dashboard know no other.
        assert families(page) == families(page_of("node01", 100))


def test_promtool_accepts_what_the_exporter_says_of_a_step():
    with real_exporter() as address:
        step = subprocess.Popen([DPCTL, "launch", "-n", "2", "--", os.path.join(BUILD, "tests/rank"), "pace", "2000", "1", "100"],
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            own = f'{{step="local.{step.pid}",slurm_job="local",user="root",'
            for sample in (f'slurm_dp_ranks{own}state="hello"}} 2\n', f'slurm_dp_rank_seconds_total{own}spent="compute"}}'):
                page = until(lambda of=sample: of in (read := page_at(address)[0]) and read, DEADLINE, sample)
            promtool("check", "metrics", text=page)
            with Prometheus(scraping([address])) as server:
                goodput = f'step:slurm_dp_goodput:ratio_rate5m{{step="local.{step.pid}",user="root"}}'
                (one,) = until(lambda: server.query(goodput), DEADLINE, goodput)
                assert 0 < float(one["value"][1]) < 1
        finally:
            step.terminate()
            step.wait(timeout=20)


@pytest.mark.parametrize("kind", ["text/plain", "application/openmetrics-text"])
def test_prometheus_scrapes_the_exporter(kind):
    """Prometheus asks for OpenMetrics, where it may have it: what it gets for each of them, it understands."""
    with real_exporter() as address:
        _, said = page_at(address, f"{kind}; version=1.0.0,text/plain;version=0.0.4;q=0.5" if "open" in kind else kind)
        assert said.startswith(kind)
        with Prometheus(scraping([address])) as server:
            until(lambda: server.query('up{job="slurm-dp"} == 1'), DEADLINE, "the exporter is up")
            until(lambda: server.query("slurm_dp_exporter_build_info"), DEADLINE, "its metrics are there")
            (target,) = server.get("targets")["activeTargets"]
            assert (target["health"], target["lastError"]) == ("up", "")
            for panel in PANELS:
                for target in panel["targets"]:
                    server.query(filled_in(target["expr"], CHOICES["everything"]))
