# SPDX-License-Identifier: Apache-2.0
"""Every command that README, guides and examples show is run here as it stands, with less to train on, or has a test of its own elsewhere; and
what they show of its output is what it prints, but for the numbers.

A new command needs a line in RUN (a function that runs it and returns what it printed) or in ELSEWHERE (which test, or who else runs it)."""
import contextlib
import glob
import itertools
import json
import os
import re
import signal
import subprocess
from typing import NamedTuple

import pytest
from localcluster.harness import BUILD, until
from localcluster.names import CHECKOUT
from test_tiles import DAWN, GPUS, SN30_BY_UNIT, tiles_conf
from test_trainer_verbs import write_images

HOME = "/home/alice/documents"
PACKAGES = os.path.join(CHECKOUT, "build/packages")  # tests/run fetches them
# The trainer with less to do: of two options the last one counts.
SMALL_TRAINER = f"""#!/bin/sh
case "$*" in
prepare* | report* | export* | evaluate* | info*) exec {BUILD}/bin/trainer "$@" ;;
*gpt*) exec {BUILD}/bin/trainer "$@" --num-layers=1 --hidden-size=16 --num-attention-heads=2 --seq-length=16 --batch-size=1 --steps=2 ;;
esac
[ "${{RANK-none}}" != "$HANGS" ] || exec sleep 600
exec {BUILD}/bin/trainer "$@" --samples=512 --batch-size=16 --epochs=${{EPOCHS-1}}
"""
FINE_TUNING = "dpctl launch -n 4 -- trainer --init-from=gpt2 --data-dir mine.jsonl --lora-rank=8 --checkpoint-dir=tuned"
# Of what it fetches there is a copy.
NPM = f"""#!/bin/sh
while [ "$1" != --pack-destination ]; do shift; done
cp {PACKAGES}/*.tgz "$2"
"""
SHOW_TILES = "#!/bin/sh\necho $SLURM_LOCALID $(env | grep -E '^(SF_RNT|ZE_AFF|CUDA_VIS)')\n"


class Shown(NamedTuple):
    command: str
    output: tuple  # lines
    place: str


def blocks_of(file, language):
    with open(os.path.join(CHECKOUT, file), encoding="utf-8") as text:
        return re.finditer(rf"(?ms)^```{language}\n(.*?)^```$", text.read())


def commands_of(file):
    """Of its console blocks: lines with a prompt, or all where there is none. What is no command is in a text block."""
    for block in blocks_of(file, "console"):
        lines = block[1].replace("\\\n", "").splitlines()
        place = f"{file}:{block.string[:block.start(1)].count(chr(10)) + 1}"
        if not any(line.startswith("$ ") for line in lines):
            lines = [f"$ {line}" for line in lines]
        for number, line in enumerate(lines):
            if line.startswith("$ "):
                following = [other.startswith("$ ") for other in lines[number + 1:]] + [True]
                yield Shown(re.sub(r"\s+# .*", "", line[2:]), tuple(lines[number + 1:number + 1 + following.index(True)]), place)


def documents():
    found = glob.glob("**/*.md", root_dir=CHECKOUT, recursive=True)
    return sorted(file for file in found if not file.startswith("build"))


SHOWN = [shown for file in documents() for shown in commands_of(file)]


class Desk:
    """Alice's folder, where the documents' commands find what they name."""

    def __init__(self, cluster):
        self.cluster = cluster
        for name, text in (("trainer", SMALL_TRAINER), ("train", SHOW_TILES), ("npm", NPM), ("job.sh", "#!/bin/sh\nsrun ./train\n")):
            self.cluster.run(f"mkdir -p {HOME}/bin && cd {HOME} && cat >bin/{name} && chmod +x bin/{name} && ln -s bin/{name} {name}",
                             input=text, check=True)
        self.run(f"mkdir -p build notes && ln -s {BUILD}/bin build/bin && ln -s {BUILD}/bin/dpctl bin/dpctl && seq 20000 >notes/numbers.txt")

    def words(self, command):
        return f"cd {HOME} && PATH={HOME}/bin:$PATH && export OMP_NUM_THREADS=1 && {command}"

    def run(self, command, check=True, **keywords):
        done = self.cluster.run(self.words(command), check=check, timeout=120, **keywords)
        return done.stdout + done.stderr

    @contextlib.contextmanager
    def training(self, option="--dp-world=auto"):
        """8 ranks on 2 nodes that train without end: srun's process, and the job's number."""
        step = self.cluster.popen(["srun", "-N2", "-n8", "--ntasks-per-node=4", option, "./trainer"], cwd=HOME, env={"EPOCHS": "1000000"})
        try:
            until(lambda: step.stdout.readline().startswith("epoch 2/"), 60, "a training trains")
            yield step, self.cluster.run(["squeue", "--noheader", "--format=%A"], check=True).stdout.strip()
        finally:
            step.terminate()
            step.communicate(timeout=60)


@pytest.fixture(scope="module")
def desk(cluster):
    return Desk(cluster)


def as_it_stands(desk, command):
    return desk.run(command)


def with_a_rank_that_hangs(desk, command):
    return desk.run(command.replace("--dp-timeout=20", "--dp-timeout=8"), check=False, env={"HANGS": "5"})


def kill_rank_5(cluster):
    victims = [process["pid"] for process in cluster.processes(["node02"]) if has(process["pid"], b"RANK=5")]
    assert len(victims) == 1
    os.kill(victims[0], signal.SIGKILL)


def with_a_rank_that_is_killed(desk, _command):
    with desk.training() as (step, _):
        kill_rank_5(desk.cluster)
        return step.communicate(timeout=60)[1]


def with_a_rank_that_starts_again(desk, _command):
    with desk.training("--dp-on-failure=restart") as (step, _):
        kill_rank_5(desk.cluster)
        ours = (line for line in iter(step.stderr.readline, "") if line.startswith("slurm-dp:"))  # a newer Gloo speaks, too
        return "".join(itertools.islice(ours, 2))


def has(pid, variable):
    with open(f"/proc/{pid}/environ", "rb") as environment:
        return variable in environment.read().split(b"\0")


def beside_a_training(desk, command):
    with desk.training() as (_, job):
        return desk.run(command.replace("--jobid=12", f"--jobid={job}"))


def with_tiles(conf, count, pattern):
    """Its tasks are told of their tiles in this way."""
    def run(desk, command):
        with tiles_conf(desk.cluster, conf):
            text = desk.run(command, env={"SBATCH_WAIT": "1"})
        if command.startswith("sbatch"):
            text = desk.run("cat slurm-*.out")
        assert len(re.findall(f"(?m)^{pattern}$", text)) == count, text
        return text
    return run


def of_two_runs(desk, command):
    write_images(desk.cluster.host_path(f"{HOME}/images"))
    for ranks in (1, 2):
        desk.run(f"dpctl launch -n {ranks} -- ./trainer --model=cnn --data-dir=images --json=cnn{ranks}.json")
    return desk.run(command)


def with_packages(desk, command):
    if not glob.glob(f"{PACKAGES}/*.tgz"):
        pytest.skip(f"{PACKAGES} is empty: no npm or no network when tests/run was called")
    return desk.run(command)


def with_tokens(desk, command):
    desk.run("rm -rf run1 run1.gpt2 && { [ -d notes.tokens ] || trainer prepare --text notes/ --tokenizer=bytes --output notes.tokens; }")
    return desk.run(command)


def with_weights(desk, command):
    with_tokens(desk, "trainer --model=gpt --data-dir notes.tokens --checkpoint-dir=run1 && trainer export --checkpoint=run1 --output=run1.gpt2")
    return desk.run(command)


def fine_tuning(desk, command):
    """From weights with a tokenizer of the 256 bytes; its first command comes before the others."""
    if not os.path.isdir(desk.cluster.host_path(f"{HOME}/gpt2")):
        own = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]  # GPT-2's letter for a byte is the byte's own, or one from 256 on
        letters = [*map(chr, own), *(chr(256 + i) for i in range(256 - len(own)))]
        vocabulary = json.dumps({letter: number for number, letter in enumerate([*letters, "<|endoftext|>"])})
        desk.run("mkdir letters && cat >letters/vocab.json", input=vocabulary)
        desk.run("echo '#version: 0.2' >letters/merges.txt && trainer prepare --text notes/ --tokenizer=letters --output letters.tokens && "
                 "trainer --model=gpt --data-dir letters.tokens --checkpoint-dir=published && "
                 "trainer export --checkpoint=published --data-dir letters.tokens --output=gpt2")
        desk.run("cat >mine.jsonl", input="".join(json.dumps({"text": f"the text of number {number}"}) + "\n" for number in range(200)))
    if not command.startswith("dpctl"):
        desk.run("[ -d tuned ] || " + FINE_TUNING)
    return desk.run(command)


def where_the_examples_are(_desk, command):
    """And the table beside it has the numbers that it prints."""
    lines = os.popen(f"cd {CHECKOUT}/packaging/examples && {command}").read()
    with open(os.path.join(CHECKOUT, "packaging/examples/README.md"), encoding="utf-8") as text:
        table = re.findall(r"(?m)^\| `(\S+\.sbatch)` .*\| (\d+) \|$", text.read())
    assert sorted(f"{script}:{count}" for script, count in table) == sorted(lines.split())
    return lines


RUN = {
    "srun -N2 --ntasks-per-node=4 --dp-world=auto ./trainer": as_it_stands,
    "srun -N2 -n4 --ntasks-per-node=2 --dp-dry-run ./trainer": as_it_stands,
    "srun -N2 -n8 --ntasks-per-node=4 --dp-timeout=20 ./trainer": with_a_rank_that_hangs,
    "srun -N2 -n8 --ntasks-per-node=4 --dp-world=auto ./trainer": with_a_rank_that_is_killed,
    "srun -N2 -n8 --ntasks-per-node=4 --dp-on-failure=restart ./trainer": with_a_rank_that_starts_again,
    "srun --overlap --jobid=12 -w node02 -n1 dpctl status": beside_a_training,
    "srun --overlap --jobid=12 -w node02 -n1 dpctl top --once": beside_a_training,
    "dpctl launch -n 4 -- ./trainer": as_it_stands,
    "sbatch -N2 --ntasks-per-node=16 --gres=rdu:1 --dp-tiles=4 job.sh": with_tiles(SN30_BY_UNIT, 2, "3 SF_RNT_TILE_AFFINITY=0xf000"),
    "srun -N2 --ntasks-per-node=8 --gres=gpu:4 --dp-tiles=1 ./train": with_tiles(DAWN, 16, r"\d ZE_AFFINITY_MASK=.+"),
    "srun -N2 --ntasks-per-node=4 --gres=gpu:4 --dp-tiles=1 ./train": with_tiles(GPUS, 8, r"\d .*CUDA_VISIBLE_DEVICES=0,1,2,3"),
    "build/bin/trainer report cnn1.json cnn2.json": of_two_runs,
    "trainer prepare --data=mnist --output mnist && trainer --model=cnn --data-dir mnist": with_packages,
    "trainer prepare --output sotu && trainer --model=gpt --data-dir sotu": with_packages,
    "trainer prepare --text notes/ --tokenizer=bytes --output notes.tokens": as_it_stands,
    "trainer --model=gpt --data-dir notes.tokens --checkpoint-dir=run1 && trainer export --checkpoint=run1 --output=run1.gpt2": with_tokens,
    "trainer --model=gpt --data-dir notes.tokens --init-from=run1.gpt2 --lr=1e-5": with_weights,
    "trainer --model=gpt --data-dir notes.tokens --checkpoint-dir=run1 && trainer evaluate --checkpoint-dir=run1 --data-dir notes.tokens": with_tokens,
    FINE_TUNING: fine_tuning,
    "trainer evaluate --checkpoint-dir=tuned --data-dir mine.jsonl --tokenizer=gpt2": fine_tuning,
    "trainer export --checkpoint=tuned --data-dir gpt2 --output=mine.gpt2": fine_tuning,
    "trainer plan --num-layers=48 --hidden-size=1600 --num-attention-heads=20 --seq-length=1024 --batch-size=4 --ranks=64 --hardware=h100":
        as_it_stands,
    "trainer info --roofline --device-model=h100 --model=gpt --gpt-size=124M --batch-size=64 --bf16": as_it_stands,
    "srun -N2 -n4 --dp-dry-run hostname": as_it_stands,
    "grep -cE '^[[:space:]]*([^#[:space:]]|#!|#SBATCH)' *.sbatch": where_the_examples_are,
}
RECORDED = "tests/cluster/test_record.py: test_a_run_says_where_the_time_of_each_rank_went"
INSTALLED = "tests/cluster/test_packages.py: test_one_line_turns_it_on_for_the_next_step"
ELSEWHERE = {
    "srun -N2 -n8 --ntasks-per-node=4 --dp-hang-timeout=60 python3 train.py": "tests/cluster/test_hangs.py: test_the_rank_that_hangs_is_named_and_the_step_ends",
    "srun -N4 --ntasks-per-node=4 --dp-preflight=quick ./trainer": "tests/cluster/test_preflight.py: test_a_step_with_an_unfit_node_is_refused_with_what_to_exclude",
    "srun -N4 --ntasks-per-node=8 --dp-preflight=quick python3 train.py": "tests/cluster/test_preflight.py: test_a_step_with_an_unfit_node_is_refused_with_what_to_exclude",
    "srun -N4 --ntasks-per-node=8 --dp-preflight=quick --dp-on-failure=restart --dp-spares=1 --no-kill python3 train.py":
        "tests/cluster/test_preflight.py: test_a_spare_takes_the_ranks_of_an_unfit_node",
    "srun -N2 --ntasks-per-node=4 --dp-nccl-debug=on python3 train.py": "tests/cluster/test_nccl_debug.py: test_a_death_is_followed_by_the_last_warning",
    # Its letters and units are those of one run; that one is shorter.
    "dpctl launch -n 4 --record rec -- dp-trainer --model=cnn --epochs 1": RECORDED,
    "dpctl report rec": RECORDED,
    "dpctl collect --job 12 --from /tmp/records rec": "tests/cluster/test_collect.py: test_the_records_of_a_job_come_together",
    "salloc --nodelist=node[01-02] dpctl collect --job 12 --from /tmp/records rec": "tests/cluster/test_collect.py: test_records_of_a_job_that_is_over_come_in_another_allocation",
    "srun -w node02 -n1 dpctl doctor -- ./trainer": "tests/cluster/test_doctor.py: test_a_small_mtu",
    "build/bin/trainer --model=cnn --steps=40 --profile=profile": "tests/cluster/test_trainer.py: test_a_profile_has_all_ranks_and_rank_0_writes_it",
    "packaging/quickstart": ".ci/run: packaging/quickstart",
    "tests/run": ".ci/run: tests/run",
    "packaging/build-deb && cd build/deb": INSTALLED,
    "packaging/build-deb": INSTALLED,
    "apt install ./slurm-dp_*.deb ./slurm-dp-tools_*.deb": INSTALLED,
    "echo 'include /usr/share/slurm-dp/plugstack.conf' >> /etc/slurm/plugstack.conf": INSTALLED,
    "dpctl launch -n 4 -- trainer --model=gpt --data-dir notes.tokens --tensor-parallel=2 --pipeline-parallel=2 --checkpoint-dir=run2":
        "tests/cluster/test_divided_models.py: test_it_goes_on_in_any_shape",
    "sbatch dli-gpt.sbatch --tensor-model-parallel-size=2 --pipeline-model-parallel-size=2 --accumulate=4":
        "tests/cluster/test_examples.py: test_dli_gpt_divided_among_its_ranks",
    "sbatch --nodes=1 --ntasks-per-node=4 dli-gpt.sbatch --num-layers=2 --steps=50": "tests/cluster/test_examples.py: test_dli_gpt",
}
# Lines of output that stand for something that is not made here: a silent node, and tiles.
STAGED = (r"  node02  silent for .*", r"node\d\d  \d-\d  .*", r"\.\.\.")


def test_every_command_is_run_here_or_elsewhere():
    shown = {one.command: one.place for one in SHOWN}
    assert len(shown) > 10
    unknown = {f"{place}: {command}" for command, place in shown.items() if command not in RUN and command not in ELSEWHERE}
    assert not unknown, f"a line in RUN or ELSEWHERE of {os.path.basename(__file__)} is missing for these"
    assert not (RUN.keys() | ELSEWHERE.keys()) - shown.keys(), "no document has these any more"
    for place in ELSEWHERE.values():
        file, name = place.split(": ")
        with open(os.path.join(CHECKOUT, file), encoding="utf-8") as text:
            assert name in text.read(), f"there is no {place}"


def test_the_c_that_is_shown_compiles():
    shown = [block[1] for file in documents() for block in blocks_of(file, "c")]
    assert shown
    for text in shown:
        lines = text.splitlines()
        includes = [line for line in lines if line.startswith("#include")]
        program = "\n".join([*includes, "#include <stdio.h>", "#include <stdlib.h>", "int main(void) {",
                             *(line for line in lines if line not in includes), "}"])
        subprocess.run(["gcc", "-Wall", "-Werror", "-fsyntax-only", f"-I{CHECKOUT}/runtime/include", "-x", "c", "-"], input=program, text=True,
                       check=True)


def like(line):
    """A pattern for the same with other numbers and widths."""
    return re.sub(r"(\\ )+", " +", re.sub(r"\d+(\\\.\d+)*", r"\\d+(\\.\\d+)*", re.escape(line.strip())))


@pytest.mark.parametrize("shown", [one for one in SHOWN if one.command in RUN], ids=lambda one: one.command)
def test_it_does_what_is_shown(cluster, desk, shown):
    printed = [line.strip() for line in RUN[shown.command](desk, shown.command).splitlines()]
    for line in shown.output:
        if not any(re.fullmatch(staged, line) for staged in STAGED):
            assert any(re.fullmatch(like(line), other) for other in printed), "\n".join([line, "is not among", *printed])
    cluster.assert_idle(deadline=40)
    cluster.assert_nothing_left()
