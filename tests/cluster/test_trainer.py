# SPDX-License-Identifier: Apache-2.0
"""The bundled trainer on the cluster: it trains, and how many ranks share the work does not change what is learnt."""
import array
import gzip
import json
import os
import pathlib
import re
import shutil
import signal

import jsonschema
import pytest
from localcluster.harness import BUILD, until
from localcluster.names import CHECKOUT
from test_trainer_verbs import write_images

DPCTL = os.path.join(BUILD, "bin/dpctl")
TRAINER = os.path.join(BUILD, "bin/trainer")
FOUR_RANKS = ["srun", "-N2", "-n4", "--dp-world=auto"]
GPT = "--model=gpt --num-layers=1 --hidden-size=16 --num-attention-heads=2 --seq-length=16 --batch-size=1 --data-dir=tokens"


with open(os.path.join(CHECKOUT, "packaging/schemas/trainer-profile.schema.json"), encoding="utf-8") as schema:
    PROFILE_SCHEMA = jsonschema.Draft202012Validator(json.load(schema))


def summary(done):
    """The JSON line at the end."""
    return json.loads(done.stdout.splitlines()[-1])


def test_with_no_argument_it_learns_fashion_mnist_on_two_nodes(cluster):
    done = cluster.run(["srun", "-N2", "--ntasks-per-node=4", "--dp-world=auto", TRAINER], timeout=300, check=True)
    result = summary(done)
    assert result["model"] == "ffn" and result["world_size"] == 8
    assert result["test_accuracy"] >= 0.85
    assert result["parameters_equal_on_all_ranks"] is True
    assert "Fashion-MNIST" in done.stdout and "DataParallel run: True" in done.stdout
    cluster.assert_nothing_left()


def test_linear_finds_the_line(cluster):
    done = cluster.run(["srun", "-N2", "--ntasks-per-node=4", "--dp-world=auto", TRAINER, "--model=linear"], timeout=300, check=True)
    result = summary(done)
    assert result["final_loss"] < 1e-3 and result["parameters_equal_on_all_ranks"] is True


SMALL_UNET = ["--init-features=4", "--samples=176", "--optimizer=sgd", "--lr=0.01"]


@pytest.mark.parametrize("model, batch, words", [("ffn", 64, []), ("linear", 40, []), ("cnn", 16, []), ("unet2d", 8, SMALL_UNET)])
def test_1_2_4_and_8_ranks_learn_the_same(cluster, model, batch, words):
    """After 20 steps of the same global batches the parameters agree within 1e-5 relative, the losses within 2 %."""
    results, parameters = {}, {}
    for ranks in (1, 2, 4, 8):
        dump = f"/home/alice/{model}-{ranks}.f32"
        where = ["-N1", "-n1"] if ranks == 1 else ["-N2", f"-n{ranks}", f"--ntasks-per-node={ranks // 2}"]
        done = cluster.run(["srun", *where, "--dp-world=auto", TRAINER, f"--model={model}", *words, "--steps=20", "--seed=7",
                            f"--batch-size={batch // ranks}", f"--dump-parameters={dump}"], timeout=120, check=True)
        results[ranks] = summary(done)
        assert results[ranks]["global_batch_size"] == batch and results[ranks]["steps"] == 20
        assert results[ranks]["communicator"] == ("gloo" if ranks <= 2 else "node-memory")
        parameters[ranks] = array.array("f")
        with open(cluster.host_path(dump), "rb") as file:
            parameters[ranks].frombytes(file.read())
    one = parameters[1]
    assert len(one) == results[1]["parameters"] > 100_000
    size = sum(value * value for value in one) ** 0.5
    for ranks in (2, 4, 8):
        apart = sum((a - b) ** 2 for a, b in zip(one, parameters[ranks], strict=True)) ** 0.5
        assert apart / size < 1e-5, f"{ranks} ranks: parameters differ by {apart / size:.2e} relative"
        assert abs(results[ranks]["final_loss"] / results[1]["final_loss"] - 1) < 0.02


def test_it_prints_what_the_tutorials_print(cluster):
    world = ["srun", "-N2", "--ntasks-per-node=2", "--dp-world=auto", TRAINER, "--model=ffn", "--steps=30", "--log-interval=10"]
    pytorch = cluster.run([*world, "--log-style=pytorch"], timeout=60, check=True).stdout
    for rank in range(4):
        assert f"Rank {rank} on Node {rank // 2}: Initializing process group.\n" in pytorch
    for line in (r"MASTER_ADDR: \d+\.\S+", r"MASTER_PORT: \d+", "WORLD_SIZE: 4", "NODE_RANK: 0", r"Entering training loop\.\.\.",
                 r"Train Epoch: 1 \[640/60000 \(4%\)\]\tLoss: \d\.\d{6}", r"Exiting training loop\.\.\.", r"Training time = \d+\.\d+"):
        assert len(re.findall(f"(?m)^{line}$", pytorch)) == 1, line
    megatron = cluster.run([*world, "--log-style=megatron", "--lr-schedule=cosine"], timeout=60, check=True).stdout
    assert megatron.count("using world size: 4, data-parallel-size: 4, tensor-model-parallel size: 1, pipeline-model-parallel size: 1\n") == 1
    iterations = re.findall(r"(?m)^ iteration +(\d+)/ +30 \| consumed samples: +(\d+) \| .* grad norm: (\d+\.\d{3}) ", megatron)
    assert [(int(number), int(samples)) for number, samples, _ in iterations] == [(10, 2560), (20, 5120), (30, 7680)]
    assert all(float(norm) > 0 for *_, norm in iterations)
    samba = cluster.run([*world, "--log-style=samba"], timeout=60, check=True).stdout
    lines = re.findall(r"(?m)^inner train loop time : .*$", samba)
    assert len(lines) == 4 and samba.count("'training_sequences_per_second'") == 1


def test_each_rank_has_printed_its_line_before_the_summary_comes(cluster):
    """Without srun, which has a pipe for each rank: what ends in one file is there in the order in which it was written."""
    for _ in range(10):
        done = cluster.run([DPCTL, "launch", "-n", "4", "--", TRAINER, "--model=linear", "--steps=5", "--log-style=samba"], timeout=60, check=True)
        assert done.stdout.count("inner train loop time : ") == 4 and summary(done)["world_size"] == 4


def test_a_throughput_out_of_its_limits_has_an_exit_code_and_one_line(cluster):
    world = ["srun", "-N2", "--ntasks-per-node=2", "--dp-world=auto", "--dp-on-failure=report", TRAINER, "--model=linear", "--steps=20"]
    slow = cluster.run([*world, "--min-throughput=1e12"], timeout=60)
    assert slow.returncode == 6 and slow.stderr.count("is less than --min-throughput") == 1, slow.stderr
    assert summary(slow)["parameters_equal_on_all_ranks"] is True
    cluster.run([*world, "--min-throughput=1", "--max-throughput=1e12"], timeout=60, check=True)


def test_one_node_and_two_are_compared_from_a_jobs_output_and_its_metrics(cluster):
    """The world's first rank writes the metrics; `trainer report` reads what the job has printed."""
    train = f"--dp-world=auto {TRAINER} --model=linear --steps=40 --log-interval=10 --metrics=metrics.jsonl --tensorboard=board"
    cluster.run(["sbatch", "--wait", "-N2", "--ntasks-per-node=2", "-o", "compared.out",
                 "--wrap", f"srun -N1 -n2 {train}; srun -N2 -n4 {train}"], cwd="/home/alice", timeout=120, check=True)
    rows = json.loads(cluster.run([TRAINER, "report", "--json", "compared.out"], cwd="/home/alice", timeout=60, check=True).stdout)
    assert [(row["nodes"], row["ranks"], row["steps"]) for row in rows] == [(1, 2, 40), (2, 4, 40)]
    assert rows[0]["speed_up"] == 1 and rows[1]["baseline"] == "compared.out"
    lines = [json.loads(line) for line in cluster.run(["cat", "/home/alice/metrics.jsonl"], check=True).stdout.splitlines()]
    runs = [line["run"] for line in lines if line["event"] == "start"]
    assert len(runs) == 2 and len(set(runs)) == 2
    for run in runs:
        assert [line["step"] for line in lines if line["run"] == run and line["event"] == "step"] == [10, 20, 30, 40]
    assert len(cluster.run(["ls", "/home/alice/board"], check=True).stdout.split()) == 2


def test_what_does_not_fit_is_refused_in_one_line_with_what_does(cluster):
    world = ["srun", "-N2", "--ntasks-per-node=2", "--dp-world=auto", "--dp-on-failure=report", TRAINER, "--model=ffn", "--memory-limit=100MiB"]
    refused = cluster.run([*world, "--batch-size=14000"], timeout=60)
    assert refused.returncode == 5 and refused.stderr.count("give a smaller --batch-size") == 1, refused.stderr
    advice = re.search(r"(\d+) is the largest that fits; --batch-size (\d+) --accumulate (\d+) keeps", refused.stderr)
    assert int(advice[2]) * int(advice[3]) == 14000, refused.stderr
    cluster.run([*world, f"--batch-size={advice[1]}", "--steps=1"], timeout=60, check=True)


def test_measuring_takes_all_ranks_and_rank_0_speaks(cluster):
    done = cluster.run(["srun", "-N2", "--ntasks-per-node=2", "--dp-world=auto", TRAINER, "measure-performance", "--model=linear",
                        "--iterations=20"], timeout=60, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == 1 and done.stdout.splitlines()[-1].startswith("{")
    assert (lines[0]["measured"], lines[0]["world_size"], lines[0]["nodes"], lines[0]["iterations"]) == ("linear", 4, 2, 20)
    assert 0 < lines[0]["communication_share_least"] <= lines[0]["communication_share_most"] < 1


def test_where_a_rank_shares_no_memory_all_use_gloo_and_say_so_once(cluster):
    train = f'[ $RANK = 2 ] && export DP_TRAINER_NODE_MEMORY=0; exec {TRAINER} --model=linear --steps=5'
    done = cluster.run(["srun", "-N2", "--ntasks-per-node=2", "--dp-world=auto", "sh", "-c", train], timeout=60, check=True)
    assert done.stdout.count("ranks of a node share no memory; what they send each other goes through Gloo: rank 2: DP_TRAINER_NODE_MEMORY=0") == 1
    assert summary(done)["communicator"] == "gloo"


def test_a_profile_has_all_ranks_and_rank_0_writes_it(cluster):
    cluster.run(["rm", "-rf", "profile"], cwd="/home/alice", check=True)
    done = cluster.run([*FOUR_RANKS, TRAINER, "--model=linear", "--steps=40", "--profile=profile"], cwd="/home/alice", timeout=120, check=True)
    assert done.stdout.count("profile of steps 10 to 15: ") == 1 and "ranks spend " in done.stdout, done.stdout
    assert "profile: profile/profile.html" in done.stdout.splitlines() and summary(done)["steps"] == 40
    files = cluster.run(["ls", "profile"], cwd="/home/alice", check=True).stdout.split()
    assert files == ["profile.html", "profile.json", "profile.trace.json", "profile.txt"]
    with open(cluster.host_path("/home/alice/profile/profile.json"), encoding="utf-8") as file:
        profile = json.load(file)
    PROFILE_SCHEMA.validate(profile)
    assert len(profile["ranks"]) == 4 and all(0 < rank["communication"] < rank["step"] for rank in profile["ranks"])
    assert profile["steps"] == [10, 15] and profile["overhead"] < 0.02
    assert abs(sum(profile["parts"].values()) + profile["other"] - profile["seconds"]) < 1e-6
    assert {row["name"] for row in profile["layers"]} == {"", "linear.1", "linear.2", "linear.3"}
    cluster.assert_nothing_left()


def test_a_profile_that_can_no_longer_be_written_costs_nothing_else(cluster):
    cluster.run(["ln", "-sf", "/dev/full", "full.json"], cwd="/home/alice", check=True)
    done = cluster.run([TRAINER, "--model=linear", "--steps=20", "--profile=full.json", "--dump-parameters=dump", "--json=summary.json"], cwd="/home/alice", timeout=60)
    assert done.returncode == 2 and re.fullmatch("trainer: .*full.json.*No space left on device.*\n", done.stderr), done.stderr
    assert summary(done)["steps"] == 20
    cluster.run(["test", "-s", "dump", "-a", "-s", "summary.json"], cwd="/home/alice", check=True)


def test_measuring_writes_no_profile(cluster):
    done = cluster.run([TRAINER, "measure-performance", "--model=linear", "--iterations=3", "--profile=p"], cwd="/home/alice", timeout=60, check=True)
    assert "it writes nothing for --profile" in done.stdout and cluster.run(["test", "-e", "/home/alice/p"]).returncode == 1


def codes_where_one_is_killed(cluster, victim, training, *options):
    """Of four ranks on two nodes, one of which is killed while they train. Nobody ends the others."""
    step = cluster.popen(["srun", "-N2", "--ntasks-per-node=2", "--kill-on-bad-exit=0", "--dp-world=auto", "--dp-on-failure=report", *options, "sh", "-c",
                          f"{training} --log-interval=1 --metrics=killed.jsonl; code=$?; echo rank $RANK: $code; exit $code"], cwd="/home/alice")
    metrics = pathlib.Path(cluster.host_path("/home/alice/killed.jsonl"))
    until(lambda: metrics.exists() and metrics.read_text(encoding="utf-8").count('"step"') > 3, 60, "the first steps")
    for process in cluster.processes():
        if process["command"].startswith(TRAINER):
            with open(f"/proc/{process['pid']}/environ", "rb") as file:
                if f"\0RANK={victim}\0".encode() in b"\0" + file.read():
                    os.kill(process["pid"], signal.SIGKILL)
    out, err = step.communicate(timeout=15)
    metrics.unlink()
    print(out, err)
    return dict(re.findall(r"(?m)^rank (\d): (\d+)$", out))


@pytest.mark.parametrize("victim", [0, 3])
def test_a_killed_rank_ends_the_training_of_the_others(cluster, victim):
    """Each finds out by its connections, and says so."""
    codes = codes_where_one_is_killed(cluster, victim, f"{TRAINER} --model=cnn --batch-size=16 --epochs=100")
    assert codes == {str(rank): "137" if rank == victim else "4" for rank in range(4)}
    cluster.assert_nothing_left()


def test_a_training_that_writes_files_outlives_the_reader_of_its_lines(cluster):
    train = f"{TRAINER} --model=linear --steps=400 --epochs=20 --json=piped.json --no-cache"
    done = cluster.run(["bash", "-c", f"{train} | head -1; echo ${{PIPESTATUS[0]}}; {train} >/dev/full; echo $?"], cwd="/home/alice", timeout=60, check=True)
    assert done.stdout.splitlines()[-2:] == ["0", "2"], done
    assert json.loads(cluster.run(["cat", "piped.json"], cwd="/home/alice", check=True).stdout)["steps"] == 400


def test_a_single_task_needs_no_world(cluster):
    done = cluster.run(["srun", "-n1", TRAINER, "--model=linear", "--steps=5"], timeout=60, check=True)
    assert "DataParallel run: False" in done.stdout


@pytest.fixture(scope="module")
def spoilt(cluster):
    """A folder of alice's, "spoilt", with data and a checkpoint that are good, and copies of them that are not."""
    folder = "/home/alice/spoilt"
    cluster.run(["mkdir", folder], check=True)
    write_images(cluster.host_path(f"{folder}/images"))
    for command in (f"cp -r images cut && truncate --size=-1 cut/train-images-idx3-ubyte",
                    f"{TRAINER} prepare --text {CHECKOUT}/daemon/SECURITY.md --tokenizer=bytes --output=tokens",
                    "cp -r tokens changed && printf x | dd of=changed/train_000000.bin bs=1 seek=2000 conv=notrunc",
                    f"{' '.join(FOUR_RANKS)} {TRAINER} --model=linear --steps=1 --checkpoint-dir=saved",
                    "cp -r saved lacking && rm lacking/step-000000001/rank-00002-of-00004.f32"):
        cluster.run(command, cwd=folder, check=True)
    yield folder
    shutil.rmtree(cluster.host_path(folder))


# Good words, the bad one behind them, and what the one line says after the name of the rank that says it.
BAD_INPUT = {
    "a cut file": ("--model=ffn --data-dir=images", "--data-dir=cut", "cut/train-images-idx3-ubyte: the file is cut short; fetch the file again"),
    "another byte": (GPT, "--data-dir=changed", "changed/train_000000.bin: changed since `trainer prepare` wrote it; remove the directory, and make it again"),
    "a vocabulary that is too small": (GPT, "--vocab-size=100", "--vocab-size 100 is smaller than the data's, 257; give at least that"),
    "a checkpoint without a shard": ("--model=linear --checkpoint-dir=saved", "--checkpoint-dir=lacking",
                                     "the checkpoint lacking/step-000000001 lacks rank-00002-of-00004.f32; no older one is whole; remove it"),
    "a checkpoint of another model": ("--model=ffn --data-dir=images", "--checkpoint-dir=saved",
                                      "the checkpoint saved/step-000000001 is of the model linear; give --model=linear"),
    "a size that there is not": ("--model=unet2d", "--image-size=300", "--image-size: '300' is not one of 256, 512, 1024; "),
    "no checkpoint to go on from": ("--model=linear --checkpoint-dir=d1/d2/d3", "--resume=must",
                                    "--checkpoint-dir d1/d2/d3: no checkpoint there, and --resume=must asks for one"),
    "a checkpoint that is not to be there": ("--model=linear --checkpoint-dir=saved --metrics=m.jsonl --tensorboard=board", "--resume=never",
                                             "--checkpoint-dir saved: there are checkpoints, and --resume=never asks for none"),
    "a directory that cannot be made": ("--model=linear --metrics=m.jsonl", "--tensorboard=/proc/x", "--tensorboard: /proc/x cannot be written: "),
    "a profile that cannot be made": ("--model=linear", "--profile=/proc/x", "--profile: /proc/x cannot be written: "),
    "a profile in a file that cannot be made": ("--model=linear", "--profile=/proc/x.json", "--profile: /proc/x.json cannot be written: "),
    "no steps to profile": ("--model=linear --profile=p", "--profile-steps=9:3",
                            "--profile-steps: '9:3' is not a step or a range of at most 100 steps, such as 10:15"),
    "steps of no profile": ("--model=linear", "--profile-steps=3", "--profile-steps "),
    "limits that exclude each other": ("--model=linear --min-throughput=10", "--max-throughput=5",
                                       "--min-throughput: 10 is more than --max-throughput, which is 5: no run satisfies both; "),
    "no number": ("--model=linear", "--lr=nan", "--lr: 'nan' is not a number above 0, such as 0.001; "),
    "no whole number": ("--model=linear", "--epochs=many", "--epochs: 'many' is not a whole number from 1 to "),
    "an unknown option": ("--model=linear", "--epoch-count=3", "no such option: --epoch-count; "),
    "a path longer than what ranks compare": ("--model=ffn", f"--data-dir=/{'ü' * 200}", "/ü*: no Fashion-MNIST there, which ffn trains on; give "),
    "a path that is no text": ("--model=ffn", "--data-dir=/\udcfcnix", "/.nix: no Fashion-MNIST there, which ffn trains on; give "),
}


def assert_refused_in_one_line(cluster, complaint, command):
    """By a world of four ranks in the folder of `spoilt`, with Slurm's exit code and without a trace. `command`: perhaps srun's words first."""
    listing = ["find", "/home/alice", "-type", "d", "-printf", "%p\\n", "-o", "-printf", "%p %s %T@\\n"]
    before = cluster.run(listing, check=True).stdout
    done = cluster.run([*FOUR_RANKS, *command], cwd="/home/alice/spoilt", timeout=60)
    lines = [line for line in done.stderr.splitlines() if line.startswith("trainer: ")]
    assert len(lines) == 1 and re.match(rf"trainer: (rank \d on node0\d: )?{complaint}", lines[0]), done.stderr
    assert done.returncode == 2, done.stderr
    assert "epoch" not in done.stdout and '{"model"' not in done.stdout
    assert cluster.run(listing, check=True).stdout == before


@pytest.mark.parametrize("good, bad, complaint", BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_one_line_before_any_rank_trains(cluster, spoilt, good, bad, complaint):
    assert_refused_in_one_line(cluster, complaint, [TRAINER, "--steps=1", *good.split(), bad])


def test_a_gpu_that_is_not_there_is_missed_in_one_line(cluster):
    done = cluster.run([*FOUR_RANKS, TRAINER, "--model=linear", "--steps=1", "--device=cuda"], timeout=60)
    lines = [line for line in done.stderr.splitlines() if line.startswith("trainer: ")]
    assert len(lines) == 1 and re.match("trainer: rank 0 on node01: .*--device=", lines[0]), done.stderr
    assert done.returncode == 5, done.stderr


def test_bad_data_of_one_node_is_one_line_too(cluster, spoilt):
    train = f"[ $NODE_RANK = 0 ] && data=tokens || data=changed; exec {TRAINER} {GPT} --steps=1 --data-dir=$data"
    complaint = "rank 3 on node02: changed/train_000000.bin: changed since `trainer prepare` wrote it; remove the directory, and make it again "
    assert_refused_in_one_line(cluster, complaint, ["sh", "-c", train])


def test_a_changed_pixel_in_debians_files_on_one_node_is_one_line_too(cluster, spoilt):
    """As if somebody had replaced the file by another one that gzip finds sound. Of the node's ranks the first looks."""
    name, packaged = "t10k-images-idx3-ubyte.gz", "/usr/share/datasets/fashion-mnist"
    shutil.copytree(packaged, cluster.host_path(f"{spoilt}/packaged"))
    changed = pathlib.Path(cluster.host_path(f"{spoilt}/packaged/{name}"))
    pixels = bytearray(gzip.decompress(changed.read_bytes()))
    pixels[len(pixels) // 2] ^= 1
    changed.write_bytes(gzip.compress(bytes(pixels), 1))
    cluster.node("node02", ["mount", "--bind", f"{spoilt}/packaged", packaged], check=True)
    try:
        complaint = rf"rank 2 on node02: {packaged}/{name}: not the published file; fetch it again with `apt-get install --reinstall dataset-fashion-mnist` "
        for model in ("cnn", "unet2d"):
            assert_refused_in_one_line(cluster, complaint, ["--ntasks-per-node=2", TRAINER, f"--model={model}", "--steps=1"])
    finally:
        cluster.node("node02", ["umount", packaged], check=True)


@pytest.mark.parametrize("late", [0, 3])
@pytest.mark.parametrize("words, complaint", [
    ("--epochs=many", "--epochs: 'many' is not "),
    ("--model=linear --data-parallel=off --checkpoint-dir=alone", "several tasks that train alone cannot share a --checkpoint-dir; start them as one world"),
    ("--model=ffn --data-dir=cut", "cut/train-images-idx3-ubyte: the file is cut short"),
])
def test_all_are_waited_for_before_one_ends(cluster, spoilt, late, words, complaint):
    """The first that ends has the others ended; one begins a second after them, and perhaps is the one that says what is wrong."""
    assert_refused_in_one_line(cluster, f"rank 0 on node01: {complaint}", ["sh", "-c", f"[ $RANK = {late} ] && sleep 1; exec {TRAINER} {words}"])


def test_bad_words_of_one_rank_are_told_by_it(cluster, spoilt):
    train = f"[ $RANK = 3 ] && epochs=many || epochs=1; exec {TRAINER} --model=linear --epochs=$epochs"
    assert_refused_in_one_line(cluster, "rank 3 on node02: --epochs: 'many' is not ", ["sh", "-c", train])


def test_where_words_are_bad_in_several_ways_rank_0_tells_its_own(cluster, spoilt):
    train = f"[ $RANK = 0 ] && {{ sleep 1; words=--epochs=many; }} || words=--lr=nan; exec {TRAINER} --model=linear $words"
    assert_refused_in_one_line(cluster, "rank 0 on node01: --epochs: 'many' is not ", ["sh", "-c", train])


def test_ranks_that_differ_are_named_with_what_they_have_and_what_to_do(cluster, spoilt):
    train = f"[ $RANK = 3 ] && model=linear || model=ffn; exec {TRAINER} --data-dir=images --model=$model --steps=1"
    complaint = r"rank 0 on node01: the model differs: ffn on ranks 0-2 \(node01\), linear on rank 3 \(node02\); give --model, and the same data on all nodes$"
    assert_refused_in_one_line(cluster, complaint, ["sh", "-c", train])


def test_a_step_with_two_refused_trainings_has_a_line_of_each(cluster, spoilt):
    both = f"{TRAINER} --model=ffn --data-dir=$([ $RANK = 2 ] && echo cut || echo images); {TRAINER} --epochs=$([ $RANK = 3 ] && echo many || echo 1)"
    done = cluster.run([*FOUR_RANKS, "sh", "-c", both], cwd=spoilt, timeout=60)
    lines = [line for line in done.stderr.splitlines() if line.startswith("trainer: ")]
    assert len(lines) == 2, done.stderr
    lines.sort()  # srun has one stream for each node
    assert lines[0].startswith("trainer: rank 2 on node01: cut/train-images-idx3-ubyte: ") and lines[1].startswith("trainer: rank 3 on node02: --epochs: ")


def test_in_sbatch_twice_at_once_and_for_two_users(cluster):
    """The line of the README in a batch script; two of it at once in one allocation; two users on the same nodes."""
    line = f"srun --overlap -N2 --ntasks-per-node=4 --dp-world=auto {TRAINER} --epochs=1"
    ports = set()
    for user in ("alice", "bob"):
        cluster.run(["sbatch", "-N2", "--ntasks-per-node=4", "-o", f"/home/{user}/two.out", "--wrap", f"{line} & {line} & wait; echo over"],
                    user=user, cwd=f"/home/{user}", check=True)
    for user in ("alice", "bob"):
        cluster.run("for i in $(seq 3000); do grep -qs ^over two.out && break; sleep 0.2; done", user=user, cwd=f"/home/{user}",
                    timeout=630, check=True)
        text = cluster.run(["cat", f"/home/{user}/two.out"], user=user, check=True).stdout
        results = [json.loads(row) for row in text.splitlines() if row.startswith('{"model"')]
        assert len(results) == 2, text
        assert all(r["world_size"] == 8 and r["parameters_equal_on_all_ranks"] for r in results)
        ports |= {word for word in text.split() if word.startswith("MASTER_PORT=")}
    assert len(ports) == 4  # four worlds on the same nodes, each with its own
    cluster.assert_idle()
    cluster.assert_nothing_left()
