# SPDX-License-Identifier: Apache-2.0
"""What --dp-record costs a launch and a training, and how long its report takes: of 8, 64 and 1,024 ranks for an hour, as text, JSON, a page and
a trace, and how soon that page zooms in a browser. No peer records a step; the base is the same step without the option."""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from localcluster.harness import BUILD
from localcluster.names import CHECKOUT
from measuring import difference, interleaved, machine, paired_ratio, table, verdict
from programs import built, require, warn_if_busy

sys.path.append(os.path.join(CHECKOUT, "tests/clients"))

DPCTL, TRAINER = os.path.join(BUILD, "bin/dpctl"), os.path.join(BUILD, "bin/trainer")
LAUNCH_MS, TRAINING_PERCENT = 1.0, 0.2
# ranks: (nodes, ranks a node, seconds that a report may take, MiB of its memory, MiB of the record)
SHAPES = {8: (1, 8, 2, 1024, 2), 64: (8, 8, 2, 1024, 16), 1024: (128, 8, 20, 1024, 100)}
TRACE_SECONDS = 20
ZOOM_MS = 100
HOUR, SMOKE_SECONDS = 3600, 60
SECONDS_WATCHED = 10
TRAINING = [TRAINER, "--model=ffn"]
BEFORE, AFTER = "without", "with --record"


def seconds_of(command):
    begin = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise SystemExit(f"tests/bench/run: {' '.join(map(str, command))}: {done.stderr.decode()}")
    return time.monotonic() - begin


def launched(case, folder, ranks, program):
    recording = ["--record", os.path.join(folder, str(time.monotonic_ns()))] if case == AFTER else []
    return [DPCTL, "launch", "-n", str(ranks), *recording, "--", *program]


def cost_of_a_launch(folder, rounds):
    times = interleaved([BEFORE, AFTER], rounds, lambda case: 1000 * seconds_of(launched(case, folder, 4, ["true"])))
    found = difference(times[AFTER], times[BEFORE])
    said = verdict(found, "ms", LAUNCH_MS)
    print(f"a launch of 4 ranks: {statistics.median(times[BEFORE]):.2f} ms without, {found['estimate']:+.3f} ms with --record "
          f"({found['low']:+.3f} to {found['high']:+.3f}; asked {LAUNCH_MS:g}): {said}")
    return {"ms": times, **found, "verdict": said}


def cost_of_a_training(folder, rounds, epochs):
    """Wall time, which is noisy, and the recorder's CPU time, which shows what the noise hides."""
    program = [*TRAINING, "--epochs", str(epochs)]
    times = interleaved([BEFORE, AFTER], rounds, lambda case: seconds_of(launched(case, folder, 2, program)), warm_up=1 if rounds > 1 else 0)
    found = paired_ratio(times[AFTER], times[BEFORE])
    print(f"a training of 2 ranks: {statistics.median(times[BEFORE]):.2f} s without, {found['ratio']:.4f}x with --record ({found['low']:.4f} to {found['high']:.4f})")
    cpu = {case: cpu_of_the_daemon(case, folder) for case in (BEFORE, AFTER)}
    percent = 100 * (cpu[AFTER] - cpu[BEFORE]) / (SECONDS_WATCHED * 2)
    said = "met" if percent <= TRAINING_PERCENT else f"missed by {percent / TRAINING_PERCENT:.2f}x"
    print(f"CPU time of the daemon and the writer: {1000 * cpu[BEFORE] / SECONDS_WATCHED:.2f} ms a second without, {1000 * cpu[AFTER] / SECONDS_WATCHED:.2f} with --record: "
          f"{percent:.3f} % of what its 2 ranks compute (asked {TRAINING_PERCENT:g} %): {said}")
    return {"seconds": times, **found, "cpu_seconds": cpu, "percent": percent, "verdict": said}


def cpu_of_the_daemon(case, folder):
    """CPU seconds of the daemon, and of who writes for it, while 2 ranks take steps of 10 ms for SECONDS_WATCHED."""
    step = subprocess.Popen(launched(case, folder, 2, [os.path.join(BUILD, "tests/rank"), "pace", "100000", "0", "0"]),
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    try:
        time.sleep(2)
        daemons = [pid for pid in children_of(step.pid) if name_of(pid) == "dp-rendezvousd"]
        if len(daemons) != 1:
            raise SystemExit(f"tests/bench/run: {len(daemons)} daemons where one was expected")
        processes = [*daemons, *children_of(daemons[0])]
        before = sum(map(cpu_of, processes))
        time.sleep(SECONDS_WATCHED)
        return sum(map(cpu_of, processes)) - before
    finally:
        step.terminate()
        step.wait()


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def name_of(pid):
    with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()


def cpu_of(pid):
    with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
        return int(file.read().split()[0]) / 1e9


def reports(folder, ranks, seconds, rounds):
    nodes, per_node, longest, most_mib, most_record = SHAPES[ranks]
    records = os.path.join(folder, f"records-{ranks}")
    subprocess.run([built("bench-records"), records, str(nodes), str(per_node), str(seconds)], check=True)
    size = sum(os.path.getsize(os.path.join(records, name)) for name in os.listdir(records)) / 2**20
    page, trace = os.path.join(folder, f"{ranks}.html"), os.path.join(folder, f"{ranks}.json")
    rows, found = [["report", "median", "asked", "memory", "asked", ""]], {"record_mib": size, "formats": {}}
    for name, words in (("text", []), ("json", ["--json"]), ("page", ["--html", page]), ("trace", ["--trace", trace])):
        times, memory = [], 0
        for _ in range(rounds):
            time_of_one, memory_of_one = measured([DPCTL, "report", *words, records])
            times.append(time_of_one)
            memory = max(memory, memory_of_one)
        median = statistics.median(times)
        most_seconds = TRACE_SECONDS if name == "trace" else longest
        said = "met" if median <= most_seconds and memory <= most_mib else "missed"
        rows.append([name, f"{median:.2f} s", f"{most_seconds} s", f"{memory:.0f} MiB", f"{most_mib} MiB", said])
        found["formats"][name] = {"seconds": times, "mib": memory, "verdict": said}
    print(f"{ranks} ranks for {seconds} s: a record of {size:.1f} MiB (asked, for an hour: {most_record} MiB), a page of {os.path.getsize(page) / 1e6:.2f} MB, a trace of {os.path.getsize(trace) / 1e6:.0f} MB")
    print(table(rows))
    found["zoom"] = zooms(page)
    return found


def measured(command):
    """→ seconds, MiB at its peak"""
    before = time.monotonic()
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        raise SystemExit(f"tests/bench/run: {' '.join(command)} failed")
    return time.monotonic() - before, usage.ru_maxrss / 1024


def zooms(page):
    if not shutil.which("chromedriver"):
        print("the page's zoom is not measured: chromium-driver is not installed")
        return None
    import browsing  # noqa: PLC0415  # needs Selenium

    with browsing.browser() as browser:
        browser.get(f"file://{page}")
        times = browsing.zoom_times(browser)
    said = "met" if statistics.median(times) <= ZOOM_MS else "missed"
    print(f"a zoom of its page in Chromium: median {statistics.median(times):.1f} ms, at most {max(times):.1f} (asked {ZOOM_MS}): {said}\n")
    return {"ms": times, "verdict": said}


def run(options):
    require(DPCTL, TRAINER, built("bench-records"))
    rounds = options.rounds or 20
    with tempfile.TemporaryDirectory(prefix="dp-bench-record-") as folder:
        result = {"machine": machine()}
        warn_if_busy(result["machine"])
        result = {**result,
                  "launch": cost_of_a_launch(folder, rounds if options.smoke else 10 * rounds),
                  "training": cost_of_a_training(folder, 1 if options.smoke else max(rounds // 2, 3), 1 if options.smoke else 3)}
        for ranks in SHAPES:
            result[f"report of {ranks}"] = reports(folder, ranks, SMOKE_SECONDS if options.smoke else HOUR, 1 if options.smoke else 3)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    return 0
