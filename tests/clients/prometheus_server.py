# SPDX-License-Identifier: Apache-2.0
"""Debian's Prometheus on a loopback port, with storage of its own that goes with it."""
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

import yaml

_PATIENCE = 30


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class PrometheusError(AssertionError):
    """What its API said."""


class Prometheus:
    """`configuration`: prometheus.yml as a value."""

    def __init__(self, configuration):
        self._folder = tempfile.TemporaryDirectory(prefix="slurm-dp-prometheus-")
        self._configuration = pathlib.Path(self._folder.name, "prometheus.yml")
        self._configuration.write_text(yaml.safe_dump(configuration), encoding="utf-8")
        self._log = pathlib.Path(self._folder.name, "log")
        self._process = None
        self.address = f"127.0.0.1:{free_port()}"

    def __enter__(self):
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                ["prometheus", f"--config.file={self._configuration}", f"--storage.tsdb.path={self._folder.name}/data",
                 f"--web.listen-address={self.address}", "--log.level=warn"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=5):
                    return self
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > end:
                    said = self._log.read_text(encoding="utf-8", errors="replace")
                    self.__exit__()
                    raise PrometheusError(f"Prometheus does not become ready: {error}\n{said}") from error
            time.sleep(0.05)

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def get(self, path, **parameters):
        """The `data` of its answer."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}"
        try:
            with urllib.request.urlopen(url, timeout=_PATIENCE) as answer:
                said = json.load(answer)
        except urllib.error.HTTPError as error:
            raise PrometheusError(f"{path} {parameters}: {error.read().decode(errors='replace')}") from error
        if said.get("warnings"):
            raise PrometheusError(f"{path} {parameters}: {said['warnings']}")
        return said["data"]

    def query(self, expression):
        """→ a list of labels and values, now."""
        return self.get("query", query=expression)["result"]

    def query_range(self, expression, seconds=60, step=1):
        now = time.time()
        return self.get("query_range", query=expression, start=now - seconds, end=now, step=step)["result"]


def example(path):
    """A file of YAML, as a value."""
    with open(os.fspath(path), encoding="utf-8") as file:
        return yaml.safe_load(file)
