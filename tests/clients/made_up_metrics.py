# SPDX-License-Identifier: Apache-2.0
"""Two nodes' pages of metrics, made up: every family of `dpctl exporter`, every value of a label, and everything goes wrong."""
import http.server
import threading
import time

SPENT = ("compute", "communication", "load", "checkpoint", "idle", "unlabelled", "start", "hang", "restart", "ended", "spare")
STATES = ("not_started", "started", "hello", "goodbye", "vanished", "exited")
STARTUP = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


def labels(**values):
    return "{" + ",".join(f'{name}="{value}"' for name, value in values.items()) + "}" if values else ""


class Page:
    def __init__(self):
        self._families = {}

    def add(self, name, kind, value, suffix="", /, **values):
        own = self._families.setdefault(name, [f"# HELP {name} What is made up.\n# TYPE {name} {kind}\n"])
        own.append(f"{name}{suffix}{labels(**values)} {value:g}\n")

    def text(self):
        return "".join("".join(family) for family in self._families.values())


def add_broker(page, step, age):
    """What the node with the step's broker says."""
    for state in STATES:
        page.add("slurm_dp_ranks", "gauge", {"not_started": 1, "hello": 3}.get(state, 0), state=state, **step)
    for state in ("here", "left", "lost", "not_connected", "silent"):
        page.add("slurm_dp_nodes", "gauge", {"here": 1, "silent": 1}.get(state, 0), state=state, **step)
    page.add("slurm_dp_node_silent_seconds", "gauge", 20, node="node02", **step)
    for moment, after in (("started", 0.2), ("hello", 1.1), ("id", 1.2), ("ready", 2.3)):
        page.add("slurm_dp_start_seconds", "gauge", after, moment=moment, **step)
    for name, value in (("meetings", 1), ("age_seconds", age), ("ending", 1), ("generation", 3), ("slow_ranks", 1)):
        page.add(f"slurm_dp_{name}", "gauge", value, **step)
    for kind in ("exit", "signal", "node", "other"):
        page.add("slurm_dp_deaths_total", "counter", 1 + int(age / 5), kind=kind, **step)
    page.add("slurm_dp_restarts_total", "counter", 3, **step)
    page.add("slurm_dp_silences_total", "counter", 12, **step)
    page.add("slurm_dp_hangs_total", "counter", 1, **step)
    page.add("slurm_dp_hang_seconds_total", "counter", age, **step)


def page_of(node, age):
    """`age`: seconds since it all began."""
    page = Page()
    steps = [{"step": "12.0", "slurm_job": "12", "user": "alice"}, {"step": "13.0", "slurm_job": "13", "user": "bob"}]
    for step, brokers_node in zip(steps, ("node01", "node02")):
        if node == brokers_node:
            add_broker(page, step, age)
        for spent in SPENT:
            page.add("slurm_dp_rank_seconds_total", "counter", age * (len(SPENT) if spent == "compute" and step["slurm_job"] == "12" else 1), spent=spent, **step)
        page.add("slurm_dp_tiles", "gauge", 4, **step)
    for at, bound in enumerate(STARTUP):
        page.add("slurm_dp_startup_seconds", "histogram", int(age) + at, "_bucket", le=f"{bound:g}")
    page.add("slurm_dp_startup_seconds", "histogram", int(age) + len(STARTUP), "_bucket", le="+Inf")
    page.add("slurm_dp_startup_seconds", "histogram", 2 * age, "_sum")
    page.add("slurm_dp_startup_seconds", "histogram", int(age) + len(STARTUP), "_count")
    page.add("slurm_dp_exporter_steps", "gauge", 2)
    page.add("slurm_dp_exporter_unreachable_steps", "gauge", 1)
    for how in ("finished", "failed", "unknown"):
        page.add("slurm_dp_exporter_ended_steps_total", "counter", 0 if how == "finished" else 10 * int(age), how=how)
    page.add("slurm_dp_exporter_build_info", "gauge", 1, version="0.1.0" if node == "node01" else "0.2.0")
    return page.text()


class MadeUpExporter:
    """Serves one node's page on a loopback port of its own, as `dpctl exporter` does."""

    def __init__(self, node):
        began = time.monotonic()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):  # noqa: N802  # http.server's name
                body = page_of(node, 1 + time.monotonic() - began).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
