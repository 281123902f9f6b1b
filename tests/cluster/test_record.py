# SPDX-License-Identifier: Apache-2.0
"""--dp-record: what a step did can be read afterwards, however it ended, and recording it never hurts it."""
import json
import os
import re
import signal
import time

import jsonschema
import pytest
from conftest import planted_on
from localcluster.harness import BUILD, until
from localcluster.names import CHECKOUT
from test_restarts import ranks_of
from test_tiles import tiles_conf

pytestmark = pytest.mark.usefixtures("one_step_each")

RANK = os.path.join(BUILD, "tests/rank")
DPCTL = os.path.join(BUILD, "bin/dpctl")
TRAINER = os.path.join(BUILD, "bin/trainer")
RECORDS = "/home/alice/records"
with open(os.path.join(CHECKOUT, "packaging/schemas/report.schema.json"), encoding="utf-8") as file:
    SCHEMA = jsonschema.Draft202012Validator(json.load(file))
TWO_NODES = ["srun", "-N2", "--ntasks-per-node=2", "-m", "block", f"--dp-record={RECORDS}"]


@pytest.fixture(autouse=True)
def no_records(cluster):
    cluster.run(["rm", "-rf", RECORDS], check=True)


def report(cluster, *places):
    done = cluster.run([DPCTL, "report", "--json", *(places or [RECORDS])], check=True)
    said = json.loads(done.stdout)
    SCHEMA.validate(said)
    for run in said["runs"]:
        assert abs(sum(run["ledger"].values()) - run["allocated"]) < 0.01 + 1e-5 * run["allocated"], run["ledger"]
        for task in run["tasks"]:
            assert abs(sum(task["ledger"].values()) - run["seconds"]) < 0.02, task
    return said


def only_run(cluster):
    said = report(cluster)
    assert len(said["runs"]) == 1 and said["problems"] == [], said["problems"]
    return said["runs"][0]


def trace_of(cluster, path):
    """The events; of those that last, none overlaps another of its thread: Perfetto would drop it."""
    with open(cluster.host_path(path), encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    ends = {}
    for event in events:
        if event["ph"] != "X":
            continue
        thread = event["pid"], event["tid"]
        assert event["ts"] >= ends.get(thread, 0) and event["dur"] > 0, event
        ends[thread] = event["ts"] + event["dur"]
    return events


def own_lines(done):
    return [line for line in done.stderr.splitlines() if "--dp-record" in line]


def test_a_run_says_where_the_time_of_each_rank_went(cluster):
    # Rank 3 is slow: the others wait for it.
    done = cluster.run([*TWO_NODES, "--dp-slow=0", RANK, "pace", "200", "3", "200"], timeout=60)
    assert done.returncode == 0 and own_lines(done) == [], done.stderr
    # The last line says it in short.
    spent = re.search(rf"^slurm-dp: the tasks spent (\d+) s: (.*); more: dpctl report {RECORDS}$", done.stderr, re.MULTILINE)
    assert spent and "communication and waiting" in spent[2] and "compute" in spent[2], done.stderr
    files = cluster.run(["ls", RECORDS], check=True).stdout.split()
    assert len(files) == 2 and all(re.fullmatch(r"\d+\.0-[0-9a-f]{16}-node0[12]\.dprecord", name) for name in files), files
    run = only_run(cluster)
    assert run["outcome"] == {"how": "finished", "reason": ""} and run["world_size"] == 4 and run["hosts"] == "node[01-02]"
    assert [(task["rank"], task["host"], task["exit"]) for task in run["tasks"]] == [
        (rank, f"node0{rank // 2 + 1}", "exited with code 0") for rank in range(4)]
    for task in run["tasks"]:
        assert 190 <= task["steps"] <= 200, task["steps"]
        assert len(task["course"]) == run["windows"] and task["memory_peak_mib"] > 0
        moments = task["moments"]
        assert moments["started"] <= min(moments["hello"], moments["first_phase"]) and max(moments.values()) <= run["seconds"], moments
    slow = run["tasks"][3]
    for quick in run["tasks"][:3]:
        assert quick["ledger"]["waiting"] > 3 * slow["ledger"]["waiting"] + 1, (quick["ledger"], slow["ledger"])
    assert 0 < run["goodput"] < 1 and run["settings"]["dp-slow"] == "0"
    shares = {word: float(percent) / 100 for word, percent in re.findall(r"([a-z ]+) (\d+) %", spent[2].replace(", ", ","))}
    assert abs(float(spent[1]) - run["allocated"]) < 1 + 0.1 * run["allocated"], (spent[0], run["allocated"])
    for words, of_report in (("compute", ["compute"]), ("communication and waiting", ["communication", "waiting"])):
        assert abs(shares[words] - sum(run["ledger"][word] for word in of_report) / run["allocated"]) < 0.08, (spent[0], run["ledger"])
    said = cluster.run([DPCTL, "report", RECORDS], check=True).stdout
    assert "finished" in said and "goodput" in said and "waiting for others" in said, said
    ledger = json.loads(cluster.run([DPCTL, "ledger", "--json", RECORDS], check=True).stdout)
    SCHEMA.validate(ledger)
    assert ledger["runs"][0]["ledger"] == run["ledger"]
    cluster.run([DPCTL, "report", "--html", f"{RECORDS}/page.html", RECORDS], check=True)
    cluster.run([DPCTL, "report", "--trace", f"{RECORDS}/trace.json", RECORDS], check=True)
    trace = trace_of(cluster, f"{RECORDS}/trace.json")
    for rank in range(4):
        phases = [event for event in trace if event["ph"] == "X" and event["cat"] == "phase" and event["args"]["rank"] == rank]
        steps = {event["args"]["step"] for event in phases}
        assert len(steps) > 150, f"rank {rank}: nearly all of 200 steps are within the first ten seconds"
        # As long together as the ledger says of what the program did.
        seen = sum(event["dur"] for event in phases) / 1e6
        did = sum(run["tasks"][rank]["ledger"][word] for word in ("compute", "communication", "waiting", "load", "checkpoint", "idle"))
        assert 0.8 * did - 0.2 < seen < did + 0.5, (rank, seen, did)
    # Rank 3 is slow: the arrows come from it.
    begun = {event["id"]: event for event in trace if event["ph"] == "s"}
    ended = [event for event in trace if event["ph"] == "f"]
    assert len(ended) == len(begun) > 300
    from_slow = [event for event in begun.values() if event["pid"] == 2 and event["tid"] == 2]
    assert len(from_slow) > 0.9 * len(begun), (len(from_slow), len(begun))
    assert all(event["ts"] >= begun[event["id"]]["ts"] for event in ended)
    failed = cluster.run([DPCTL, "report", "--trace", f"{RECORDS}/nowhere/trace.json", RECORDS])
    assert failed.returncode == 1 and failed.stderr == f"dpctl: {RECORDS}/nowhere/trace.json: No such file or directory\n", failed.stderr
    cluster.assert_nothing_left()


def test_a_restart_is_recorded(cluster):
    step = cluster.popen([*TWO_NODES, "--dp-on-failure=restart", "--no-kill", RANK, "meet", "5"])
    for _ in range(4):
        assert " met" in step.stdout.readline()
    time.sleep(1)
    os.kill(ranks_of(cluster)[2], signal.SIGKILL)
    _, err = step.communicate(timeout=60)
    assert step.returncode == 0, err
    run = only_run(cluster)
    assert run["outcome"]["how"] == "finished", run["outcome"]
    assert [one["generation"] for one in run["generations"]] == [0, 1]
    assert run["generations"][0]["reason"] == "rank 2 on node02 was killed by signal 9 (SIGKILL)"
    assert 0 < run["ledger"]["restart"] < 20 and run["goodput"] is None, run["ledger"]
    assert any("generation 1 began" in event["text"] for event in run["events"]), run["events"]


def test_a_death_ends_the_record_with_its_reason(cluster):
    step = cluster.popen([*TWO_NODES, "--dp-world=auto", RANK, "meet", "600"])
    for _ in range(4):
        assert " met" in step.stdout.readline()
    os.kill(ranks_of(cluster)[1], signal.SIGSEGV)
    _, err = step.communicate(timeout=60)
    assert step.returncode != 0
    cluster.assert_nothing_left()
    run = only_run(cluster)
    assert run["outcome"] == {"how": "failed", "reason": "rank 1 on node01 was killed by signal 11 (SIGSEGV)"}
    assert all(node["is_complete"] for node in run["nodes"]), "the rest was written after the ranks were killed"


def test_the_loss_of_a_training_is_recorded(cluster):
    train = [TRAINER, "--model=linear", "--epochs=100", "--json=/home/alice/summary.json"]
    step = cluster.popen([*TWO_NODES, "--dp-record-interval=0.1", *train])
    ranks = until(lambda: len(found := ranks_of(cluster, TRAINER)) == 4 and found, 60, "all ranks are there", every=0.005)
    # A course has a point a second at most, and 100 epochs may be over in one.
    until(lambda: step.stdout.readline().startswith("epoch 1/"), 60, "an epoch is trained")
    os.kill(ranks[3], signal.SIGSTOP)
    time.sleep(1.1)
    os.kill(ranks[3], signal.SIGCONT)
    _, err = step.communicate(timeout=120)
    assert step.returncode == 0, err
    with open(cluster.host_path("/home/alice/summary.json"), encoding="utf-8") as file:
        summary = json.load(file)
    scalars = only_run(cluster)["scalars"]
    series = {one["name"]: one for one in scalars["series"]}
    assert sorted(series) == ["loss", "samples_per_second", "test_loss"] and scalars["not_finite"] == [], scalars
    last = series["test_loss"]["last"]
    assert last["step"] == summary["steps"] and last["value"] == pytest.approx(summary["test_loss"]), (last, summary)
    loss = series["loss"]
    assert loss["last"]["step"] == summary["steps"] and loss["lowest"]["value"] < loss["first"]["value"], loss
    course = loss["courses"][0]
    assert len(loss["courses"]) == 1 and course["rank"] == 0 and len(course["step"]) > 1 and course["step"] == sorted(course["step"]), course
    assert series["samples_per_second"]["highest"]["value"] > 0
    said = cluster.run([DPCTL, "report", RECORDS], check=True).stdout
    assert re.search(rf"\n    loss +0  .* at step {summary['steps']}  ", said), said


# Rank 3's loss is lost, rank 0's is not; after the restart rank 1 logs it, and there are no steps.
LOGS = """import os, time
import slurm_dp as dp
world = dp.open()
for number in range(1, 31):
    if world.generation == 0:
        dp.step(number)
        dp.log_scalar("loss", float("nan") if world.rank == 3 and number > 10 else 1 / number)
    elif world.rank > 0:
        dp.log_scalar("loss", 7)
    time.sleep(0.02)
world.barrier()
if world.generation == 0 and world.rank == 2:
    time.sleep(0.5)
    os.kill(os.getpid(), 9)
world.wait("nobody sets this", timeout=600) if world.generation == 0 else None
"""


def test_what_any_program_logs_is_recorded_by_generation(cluster):
    cluster.run(["mkdir", "-p", RECORDS], check=True)
    with open(cluster.host_path(f"{RECORDS}/logs.py"), "w", encoding="ascii") as script:
        script.write(LOGS)
    python = os.path.join(CHECKOUT, "packaging/python")
    done = cluster.run(["env", f"PYTHONPATH={python}", f"LD_LIBRARY_PATH={BUILD}/lib", *TWO_NODES, "--dp-on-failure=restart", "--no-kill", "--dp-record-interval=0.1",
                        "python3", f"{RECORDS}/logs.py"], timeout=120)
    assert done.returncode == 0, done.stderr
    run = only_run(cluster)
    loss, = run["scalars"]["series"]
    first, second = loss["courses"]
    assert [first["generation"], first["rank"], second["generation"], second["rank"]] == [0, 0, 1, 1], loss
    assert first["step"][-1] == 30 and first["value"][-1] == pytest.approx(1 / 30) and set(second["step"]) == {0} and set(second["value"]) == {7}, loss
    lost, = run["scalars"]["not_finite"]
    assert lost["rank"] == 3 and 10 < lost["step"] <= 30 and lost["value"] == "NaN", lost
    assert run["goodput"] is None, "nobody said what it did"


# The daemons kill what is in their step: not who writes what they saw.
def test_the_end_of_ranks_that_do_not_want_to_end_is_recorded(cluster):
    stubborn = ["sh", "-c", "trap '' TERM; echo $$; [ $RANK != 0 ] || exit 3; sleep 600 & wait; sleep 600"]
    done = cluster.run([*TWO_NODES, "--dp-world=auto", *stubborn], timeout=60)
    assert done.returncode != 0
    cluster.assert_nothing_left()
    run = only_run(cluster)
    assert run["outcome"] == {"how": "failed", "reason": "rank 0 on node01 exited with code 3"}
    assert all(node["is_complete"] for node in run["nodes"])


@pytest.mark.parametrize("action", ["abort", "restart"])
def test_the_ends_of_all_ranks_are_recorded_where_one_ends_the_step(cluster, action):
    """With restart their keepers hear that no other generation comes before they end."""
    all_are_up = "[ -e $0.1 ] && [ -e $0.2 ] && [ -e $0.3 ]"
    others = f"trap 'exit 7' TERM; touch $0.$RANK; until [ $RANK = 0 ] && {all_are_up}; do sleep 0.1; done; exit 2"
    cluster.run(["mkdir", RECORDS], check=True)
    cluster.run([*TWO_NODES, f"--dp-on-failure={action}", "sh", "-c", others, f"{RECORDS}/up"], timeout=60)
    assert [task["exit"] for task in only_run(cluster)["tasks"]] == ["exited with code 2", *3 * ["exited with code 7"]]


HANG = """import os, time
def load_batch():
    time.sleep(1000)
def all_reduce():
    os.read(os.pipe()[0], 1)
load_batch() if os.environ["RANK"] == "3" else all_reduce()
"""


@pytest.mark.parametrize("action", ["abort", "report"])
def test_a_hang_is_recorded_call_by_call(cluster, action):
    cluster.run(["mkdir", RECORDS], check=True)
    with open(cluster.host_path(f"{RECORDS}/hang.py"), "w", encoding="ascii") as script:
        script.write(HANG)
    step = cluster.popen([*TWO_NODES, "--dp-hang-timeout=2", f"--dp-on-failure={action}", "python3", f"{RECORDS}/hang.py"])
    for line in step.stderr:
        if "no progress" in line:
            break
    time.sleep(1)
    cluster.run(["scancel", "-u", "alice"])
    step.communicate(timeout=60)
    hangs = [event for event in only_run(cluster)["events"] if "no progress" in event["text"]]
    assert len(hangs) == 1 and hangs[0]["ranks_left_out"] == 0, hangs
    cause, others = hangs[0]["stacks"][0], hangs[0]["stacks"][1:]
    assert cause["ranks"] == [3] and cause["is_cause"] and sorted(rank for stack in others for rank in stack["ranks"]) == [0, 1, 2], hangs
    for stack, function in [(cause, "load_batch"), *((other, "all_reduce") for other in others)]:
        assert [frame["function"] for frame in stack["frames"] if frame["file"].endswith("hang.py")] == [function, "<module>"], stack
    said = cluster.run([DPCTL, "report", RECORDS], check=True).stdout
    assert re.search(r"no progress .*\n        rank 3, the cause\n(          .*\n)*          load_batch \(\S*hang.py:3\)\n", said), said


SHOW = "echo shown $RANK $(env | grep -E '^(MASTER_|WORLD_SIZE|LOCAL_RANK|DP_GENERATION|OMP_NUM_THREADS)' | sort | tr '\\n' ' ')"


def test_the_environment_of_each_rank_is_recorded_without_a_secret(cluster):
    done = cluster.run([*TWO_NODES, "--dp-world=auto", "sh", "-c", SHOW], env={"OMP_NUM_THREADS": "77", "USERS_SECRET": "hunter2"}, check=True)
    shown = {int(rank): dict(word.split("=", 1) for word in words.split()) for rank, words in re.findall(r"shown (\d) (.*)", done.stdout)}
    environment = only_run(cluster)["environment"]
    assert [one["rank"] for one in environment["ranks"]] == [0, 1, 2, 3] == sorted(shown)
    for one in environment["ranks"]:
        variables = environment["common"] | one["own"]
        assert shown[one["rank"]].pop("OMP_NUM_THREADS") == "77" and "OMP_NUM_THREADS" not in variables, "the user's"
        assert shown[one["rank"]].items() <= variables.items() and one["own"]["RANK"] == str(one["rank"]), (shown, variables)
        assert not any(name.startswith("SLURM_DP") for name in variables), variables
    assert "MASTER_PORT" in environment["common"] and "RANK" not in environment["common"], environment
    for name in cluster.run(["ls", RECORDS], check=True).stdout.split():
        with open(cluster.host_path(f"{RECORDS}/{name}"), "rb") as file:
            record = file.read()
        assert not re.search(rb"[0-9a-f]{64}|SECRET|hunter2|DP_INJECTED", record), record


def test_the_environment_of_a_restarted_world_is_recorded(cluster):
    step = cluster.popen([*TWO_NODES, "--dp-on-failure=restart", "--no-kill", RANK, "meet", "5"])
    for _ in range(4):
        assert " met" in step.stdout.readline()
    os.kill(ranks_of(cluster)[2], signal.SIGKILL)
    _, err = step.communicate(timeout=60)
    assert step.returncode == 0, err
    environment = only_run(cluster)["environment"]
    assert environment["common"]["DP_GENERATION"] == "1" and len(environment["ranks"]) == 4, environment


def test_the_environments_of_survivors_are_in_the_next_generation(cluster):
    enough = "/home/alice/enough-recorded"
    cluster.run(["rm", "-f", enough], check=True)
    step = cluster.popen([*TWO_NODES, "--dp-on-failure=restart", RANK, "survive", enough])
    for generation in (0, 1):
        for _ in range(4):
            line = step.stdout.readline()
            while not line.startswith(f"generation {generation}: "):
                assert line, step.stderr.read()
                line = step.stdout.readline()
        if generation == 0:
            os.kill(ranks_of(cluster)[3], signal.SIGKILL)

    def generations_told():
        environment = report(cluster)["runs"][0]["environment"]
        return {one["rank"]: (environment["common"] | one["own"])["DP_GENERATION"] for one in environment["ranks"]}

    # While the step runs, too: the one that is new does not wait for those that have told before.
    expected = {0: "0", 1: "0", 2: "0", 3: "1"}
    until(lambda: generations_told() == expected, 15, "the environments of all ranks")
    cluster.run(["touch", enough], check=True)
    _, err = step.communicate(timeout=30)
    assert step.returncode == 0, err
    assert generations_told() == expected
    said = cluster.run([DPCTL, "report", RECORDS], check=True).stdout
    assert "equal in all 4 ranks" in said, said


NCCL = r"""next=$(( (RANK + 1) % 4 ))
printf '%s\n' "node:1:1 [0] NCCL INFO ncclCommInitRank comm 0x5581 rank $RANK nranks 4 cudaDev 0 - Init START" \
    "node:1:1 [0] NCCL INFO Channel 00/0 : $RANK[0] -> $next[0] via P2P/CUMEM/read" \
    "node:1:1 [0] NCCL INFO Channel 01/0 : $RANK[0] -> $next[0] via P2P/CUMEM/read" >$NCCL_DEBUG_FILE
sleep 18"""


def test_what_ranks_talk_over_is_recorded_pair_by_pair(cluster):
    cluster.run(["mkdir", RECORDS], check=True)
    done = cluster.run([*TWO_NODES, f"--dp-nccl-debug={RECORDS}/nccl-%t", "sh", "-c", NCCL], timeout=60)
    assert done.returncode == 0, done.stderr
    assert only_run(cluster)["transports"] == [{"from": rank, "to": (rank + 1) % 4, "via": "P2P/CUMEM", "channels": 2} for rank in range(4)], done.stderr
    said = cluster.run([DPCTL, "report", RECORDS], check=True).stdout
    assert "P2P/CUMEM  4 pairs of ranks  8 channels" in said, said


def test_the_preflight_of_each_node_is_recorded(cluster):
    done = cluster.run([*TWO_NODES, "--dp-preflight=quick", "true"], timeout=60)
    assert done.returncode == 0, done.stderr
    for node in only_run(cluster)["nodes"]:
        found = node["preflight"]
        assert found["verdict"] in ("fit", "fit, with remarks") and (found["findings"] != []) == (found["verdict"] != "fit"), found
        assert 0 < found["seconds"] < 40, found


def test_how_often_ranks_are_looked_at_can_be_chosen(cluster):
    sizes = {}
    for interval in ("0.1", "60"):
        done = cluster.run([*TWO_NODES, f"--dp-record-interval={interval}", RANK, "meet", "3"], timeout=60)
        assert done.returncode == 0, done.stderr
        assert only_run(cluster)["settings"]["dp-record-interval"] == interval
        sizes[interval] = int(cluster.run(f"cat {RECORDS}/*.dprecord | wc -c", check=True).stdout)
        cluster.run(["rm", "-rf", RECORDS], check=True)
    assert sizes["0.1"] > sizes["60"] + 2 * 15 * 10, sizes  # at least 15 samples more on each node, of 10 bytes at least


def test_single_phases_are_recorded_with_every_interval(cluster):
    phases = {}
    for interval in ("0.1", "1", "60"):
        done = cluster.run([*TWO_NODES, f"--dp-record-interval={interval}", RANK, "pace", "150", "3", "150"], timeout=60)
        assert done.returncode == 0, done.stderr
        cluster.run([DPCTL, "report", "--trace", f"{RECORDS}/trace.json", RECORDS], check=True)
        seen = [event for event in trace_of(cluster, f"{RECORDS}/trace.json") if event["ph"] == "X" and event["cat"] == "phase"]
        for rank in range(4):
            steps = {event["args"]["step"] for event in seen if event["args"]["rank"] == rank}
            assert len(steps) > 110, f"interval {interval}, rank {rank}: nearly all of 150 steps are within the first ten seconds"
        phases[interval] = len(seen)
        cluster.run(["rm", "-rf", RECORDS], check=True)
    assert max(phases.values()) < 1.3 * min(phases.values()), phases


def test_the_records_of_a_heterogeneous_step_have_names_of_their_own(cluster):
    """Its components may share a host, where Slurm allows that."""
    done = cluster.run(f"salloc -Q -N2 -n8 --ntasks-per-node=4 srun -N1 -n1 --dp-record={RECORDS} {RANK} meet 0 : -N1 -n2 sh -c 'exec {RANK} meet 0'", timeout=60)
    assert done.returncode == 0 and own_lines(done) == [], done.stderr
    files = cluster.run(["ls", RECORDS], check=True).stdout.split()
    assert sorted(re.fullmatch(r"\d+\.0(\+\d)-[0-9a-f]{16}-node0[12]\.dprecord", name)[1] for name in files) == ["+0", "+1"], files
    run = only_run(cluster)
    assert run["outcome"]["how"] == "finished" and [task["rank"] for task in run["tasks"]] == [0, 1, 2]


def test_a_cancelled_step_can_be_read(cluster):
    step = cluster.popen([*TWO_NODES, "--dp-world=auto", RANK, "meet", "600"])
    for _ in range(4):
        assert " met" in step.stdout.readline()
    time.sleep(3)
    cluster.run(["scancel", "-u", "alice"], check=True)
    step.communicate(timeout=30)
    cluster.assert_nothing_left()
    said = report(cluster)
    assert len(said["runs"]) == 1 and said["runs"][0]["seconds"] >= 1, said
    assert sum(said["runs"][0]["ledger"][word] for word in ("unlabelled", "start")) > 4


def test_a_full_disk_ends_the_recording_and_not_the_step(cluster):
    cluster.run(["mkdir", RECORDS], check=True)
    with planted_on(cluster, "node02", f"mount -t tmpfs -o size=64k,mode=1777 none {RECORDS} && head -c 1M /dev/zero > {RECORDS}/x; true", f"umount {RECORDS}"):
        done = cluster.run([*TWO_NODES, "--dp-world=auto", RANK, "meet", "2"], timeout=60)
    assert done.returncode == 0, done.stderr
    assert len(own_lines(done)) == 1, done.stderr
    assert re.fullmatch(r"slurm-dp: node02 has stopped recording \(--dp-record\): /home/alice/records/\S+-node02\.dprecord: No space left on device; the step goes on",
                        own_lines(done)[0]), done.stderr
    said = report(cluster)
    assert [node["host"] for node in said["runs"][0]["nodes"]] == ["node01"]
    assert len(said["problems"]) == 1 and "the records of 1 of 2 nodes are missing" in said["problems"][0], said["problems"]
    cluster.assert_idle()
    cluster.assert_nothing_left()


@pytest.mark.parametrize("mode", [700, 755])
def test_a_directory_that_is_not_the_users_ends_the_recording_and_not_the_step(cluster, mode):
    with planted_on(cluster, "node01", f"mkdir -m {mode} /home/others", "rmdir /home/others"):
        done = cluster.run(["srun", "-N2", "--dp-record=/home/others/records", "true"], timeout=60)
    assert done.returncode == 0, done.stderr
    assert len(own_lines(done)) == 2, done.stderr
    for node, line in enumerate(sorted(own_lines(done)), 1):
        assert re.fullmatch(rf"slurm-dp: node0{node} has stopped recording \(--dp-record\): /home/others/records\S*: Permission denied; the step goes on", line), done.stderr


def test_a_pipe_in_the_directorys_place_holds_up_nobody(cluster):
    folder = f"{RECORDS}/slow"
    cluster.run(f"mkdir -p {RECORDS} && mkfifo {folder}", check=True)
    begin = time.monotonic()
    done = cluster.run(["srun", "-N2", f"--dp-record={folder}", RANK, "meet", "1"], timeout=60)
    assert done.returncode == 0 and time.monotonic() - begin < 20, done.stderr
    assert all("Not a directory" in line for line in own_lines(done)), done.stderr
    cluster.assert_nothing_left()


def test_a_site_can_record_every_step(another_cluster):
    site = another_cluster(plugstack_args=f"record={RECORDS}/%j")
    site.run(["rm", "-rf", RECORDS], check=True)
    assert site.run(["srun", "-N2", "--dp-world=auto", "true"]).returncode == 0
    assert site.run(["srun", "-N2", "--dp-record=off", "true"]).returncode == 0
    assert site.run(["srun", "-N2", "true"]).returncode == 0
    folders = site.run(["ls", RECORDS], check=True).stdout.split()
    assert len(folders) == 1 and folders[0].isdigit(), folders
    said = report(site, f"{RECORDS}/{folders[0]}")
    assert said["runs"][0]["job"] == int(folders[0]) and len(said["runs"][0]["nodes"]) == 2
    assert report(site, "--job", folders[0]) == said
    missing = site.run([DPCTL, "report", "--job", "4711"])
    assert missing.returncode == 1 and f"there is no record of job 4711 here ({RECORDS}/4711/4711.*.dprecord)" in missing.stderr, missing.stderr


def test_runs_of_one_job_are_also_told_together(cluster):
    cluster.run(["sbatch", "-W", "-N2", f"--dp-record={RECORDS}", "-o", "/dev/null", "--wrap", f"srun {RANK} pace 100 0 0; srun sh -c true"],
                cwd="/home/alice", timeout=60, check=True)
    said = report(cluster)
    assert [run["step"] for run in said["runs"]] == [0, 1] and len(said["jobs"]) == 1
    job = said["jobs"][0]
    assert job["runs"] == 2 and abs(job["allocated"] - sum(run["allocated"] for run in said["runs"])) < 0.01


def test_where_a_site_records_nothing_that_is_said(cluster):
    done = cluster.run([DPCTL, "ledger", "--job", "1"])
    assert done.returncode == 1 and "plugstack.conf has no record=DIR" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_nothing_recorded_is_one_line(cluster):
    cluster.run(["mkdir", RECORDS], check=True)
    for place, why in ((RECORDS, "there is no record"), (f"{RECORDS}/nowhere", "there is no such directory")):
        done = cluster.run([DPCTL, "report", place])
        assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 1 and why in done.stderr, done.stderr


# A library in the place of NVIDIA's, found as that would be, and what its driver shows of two GPUs, one of them with MIG instances.
INSTANCE = "d=$c/gi{gi}/ci0; mkdir -p $d; printf 'DeviceFileMinor: {cap}\\n' > $d/access; cp $d/access $c/gi{gi}/access"
FAKE_GPUS = " && ".join([
    "mkdir -p /run/gpus", "cp {library} /run/gpus/libnvidia-ml.so.1", "ldconfig -X -C /run/gpus/cache /run/gpus",
    "mount --bind /run/gpus/cache /etc/ld.so.cache", "mount -t tmpfs gpus /proc/driver", "mkdir -p /proc/driver/nvidia/gpus",
    "c=/proc/driver/nvidia/capabilities/gpu0/mig", INSTANCE.format(gi=1, cap=13), INSTANCE.format(gi=2, cap=22)])
NO_GPUS = "umount /proc/driver /etc/ld.so.cache; rm -r /run/gpus"


def test_gpus_are_looked_at_as_long_as_the_step_lasts(cluster):
    library = os.path.join(BUILD, "lib/libfake_nvml.so")
    if not os.path.exists(library):
        pytest.skip(f"{library} is not built: it is the unit tests'")
    conf = "nodes=node[01-02] vendor=nvidia devices=2 tiles-per-device=1 files=/dev/nvidia[0-1]\n"
    with tiles_conf(cluster, conf), planted_on(cluster, "node01", FAKE_GPUS.format(library=library), NO_GPUS):
        cluster.run([*TWO_NODES, "--dp-world=auto", "sleep", "8"], cwd="/home/alice", check=True)
        assert not [one for one in cluster.processes() if "gpu-use" in one["command"]]
    run = only_run(cluster)
    with_gpus, without = run["nodes"]
    assert "gpus" not in without and not any("GPU" in event["text"] for event in run["events"]), run["events"]
    (gpu,) = with_gpus["gpus"]
    assert gpu["tile"] == 1 and gpu["memory_total_mib"] == 141 << 10
    assert {name: value["mean"] for name, value in gpu.items() if isinstance(value, dict)} == {
        "busy_percent": 87, "memory_mib": 5 << 10, "watts": 611, "celsius": 41, "sm_mhz": 1320}
    assert gpu["slowed_seconds"] == 0 and sum(one == 611 for one in with_gpus["gpu_courses"]["watts"]) >= 3
    assert " MHz" in cluster.run([DPCTL, "report", RECORDS], check=True).stdout


def test_what_a_requeued_job_takes_again_is_repeated_work(cluster):
    """Each run takes 60 steps from the beginning: the first one's were for nothing."""
    script = (f"srun --dp-record={RECORDS} --dp-record-interval=0.2 {RANK} pace 60 1 60; "
              "[ -n \"$SLURM_RESTART_COUNT\" ] || { scontrol requeue $SLURM_JOB_ID; sleep 60; }")
    done = cluster.run(["sbatch", "--parsable", "-N2", "-n4", "--ntasks-per-node=2", "-o", "/dev/null", "--wrap", script], check=True, cwd="/home/alice")
    job = int(done.stdout)

    def is_over():
        cluster.let_go(str(job))
        return cluster.run(["squeue", "-h", "-j", str(job)]).stdout == ""

    until(is_over, 90, "both rounds")
    said = report(cluster)
    before, after = (run["ledger"] for run in said["runs"])
    assert [run["job"] for run in said["runs"]] == [job, job] and said["problems"] == []
    assert before["repeated"] > 0 and before["compute"] == before["load"] == 0, before
    assert after["repeated"] == 0 and after["compute"] > 0, after
    (together,) = said["jobs"]
    assert abs(together["ledger"]["repeated"] - before["repeated"]) < 0.01
