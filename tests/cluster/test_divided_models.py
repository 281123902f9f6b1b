# SPDX-License-Identifier: Apache-2.0
"""Ranks of the cluster that divide gpt, its layers or each of them, learn what one rank learns, go on in any other shape, and end together."""
import json
import os
import pathlib
import re
import signal

import pytest
from localcluster.harness import BUILD, until
from test_trainer import codes_where_one_is_killed

TRAINER = os.path.join(BUILD, "bin/trainer")
EMULATED = os.path.join(BUILD, "lib/emulated_cuda")
GPT = ["--model=gpt", "--num-layers=2", "--hidden-size=32", "--num-attention-heads=4", "--seq-length=32", "--data-dir=divided.tokens",
       "--device=cpu", "--seed=7", "--lr=1e-3", "--clip-grad=1"]


@pytest.fixture(scope="module", autouse=True)
def text(cluster):
    lines = "".join(f"{number} sheep and {number * 7 % 11} dogs go over the hill, and {number % 3} come back\n" for number in range(3000))
    cluster.run("cat > divided.txt", cwd="/home/alice", input=lines, check=True)
    cluster.run([TRAINER, "prepare", "--text=divided.txt", "--tokenizer=bytes", "--output=divided.tokens"], cwd="/home/alice", check=True)


def train(cluster, ranks, *words, per_node=None, code=0):
    nodes = ["-N1"] if ranks == 1 or per_node == ranks else ["-N2", f"--ntasks-per-node={per_node or ranks // 2}"]
    done = cluster.run(["srun", *nodes, f"-n{ranks}", "--dp-world=auto", *[word for word in words if word.startswith("--dp-")], TRAINER, *GPT,
                        *[word for word in words if not word.startswith("--dp-")]], cwd="/home/alice", timeout=180)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def summary(done):
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def alone(cluster):
    return summary(train(cluster, 1, "--steps=40", "--batch-size=8"))


@pytest.mark.parametrize("ranks, tensor, per_node", [(2, 2, 2), (2, 2, 1), (4, 2, 4), (4, 2, 2), (4, 4, 2), (8, 2, 4), (8, 4, 4)])
def test_ranks_that_divide_the_layers_learn_what_one_learns(cluster, alone, ranks, tensor, per_node):
    """On one node, and with layers that are divided between nodes."""
    done = train(cluster, ranks, f"--dp-tensor={tensor}", "--steps=40", f"--batch-size={8 * tensor // ranks}", per_node=per_node)
    result = summary(done)
    assert result["final_loss"] == pytest.approx(alone["final_loss"], rel=1e-5)
    assert result["test_loss"] == pytest.approx(alone["test_loss"], rel=1e-5)
    assert result["parameters"] == alone["parameters"] and result["parameters_equal_on_all_ranks"] is True
    assert result["tensor_parallel"] == tensor and result["global_batch_size"] == 8
    assert f"{ranks} ranks, tensor {tensor} data {ranks // tensor}; " in done.stdout
    cluster.assert_nothing_left()


@pytest.mark.parametrize("ranks, tensor, stages, per_node, micro_batches", [(2, 1, 2, 2, 4), (2, 1, 2, 1, 2), (4, 2, 2, 2, 4), (4, 1, 2, 2, 4), (8, 2, 2, 4, 4)])
def test_stages_of_a_pipeline_learn_what_one_rank_learns(cluster, alone, ranks, tensor, stages, per_node, micro_batches):
    """On one node and between two; with ranks that divide the layers, and with others that have other samples."""
    data = ranks // tensor // stages
    done = train(cluster, ranks, f"--dp-tensor={tensor}", f"--dp-pipeline={stages}", "--steps=40", f"--batch-size={8 // data // micro_batches}",
                 f"--accumulate={micro_batches}", per_node=per_node)
    result = summary(done)
    assert result["final_loss"] == pytest.approx(alone["final_loss"], rel=1e-5)
    assert result["test_loss"] == pytest.approx(alone["test_loss"], rel=1e-5)
    assert result["parameters"] == alone["parameters"] and result["parameters_equal_on_all_ranks"] is True
    assert result["pipeline_parallel"] == stages and result["global_batch_size"] == 8
    # A layer on each stage, and the last one's head costs more than half of one: it waits for a pass of the first one, which waits for it.
    layer, head = 24 * 32 * 32 + 2 * 32 * 32, 2 * 32 * 257
    predicted = 100 * (1 - micro_batches * (2 * layer + head) / 2 / (layer + micro_batches * (layer + head)))
    (told,) = re.findall(rf"{ranks} ranks, tensor {tensor} pipeline {stages} data {data}, micro-batches {micro_batches}, bubble (\d+) %; ", done.stdout)
    (again,) = re.findall(r"bubble: [\d.]+ % of the passes was waiting for other stages, ([\d.]+) % predicted", done.stdout)
    assert float(told) == pytest.approx(predicted, abs=0.6) and float(again) == pytest.approx(predicted, abs=0.1)
    assert result["pipeline_layers"] == [1, 1]
    assert 0 < result["pipeline_bubble"] < 1
    cluster.assert_nothing_left()


@pytest.mark.parametrize("division", [["--dp-tensor=2"], ["--dp-tensor=2", "--dp-pipeline=2"]])
def test_ranks_that_divide_a_model_in_bf16_learn_what_one_learns(cluster, division):
    """Their sums are of numbers that each has rounded, on a node and between two, and what is learnt stays equal on all."""
    one = summary(train(cluster, 1, "--steps=40", "--batch-size=8", "--bf16"))
    result = summary(train(cluster, 4, *division, "--steps=40", "--batch-size=2", "--accumulate=2" if len(division) == 1 else "--accumulate=4", "--bf16"))
    assert result["final_loss"] == pytest.approx(one["final_loss"], rel=0.01)
    assert result["test_loss"] == pytest.approx(one["test_loss"], rel=0.01)
    assert result["precision"] == "bf16" and result["global_batch_size"] == 8 and result["parameters_equal_on_all_ranks"] is True


@pytest.mark.parametrize("ranks, division, per_node, words", [
    (6, "--dp-pipeline=2", 4, []), (6, "--dp-pipeline=2", 3, []), (6, "--dp-tensor=2", 4, []), (6, "--dp-tensor=2", 3, []),
    (8, "--dp-tensor=4", 5, ["--sequence-parallel"])])
def test_copies_stay_equal_where_groups_add_in_other_orders(cluster, ranks, division, per_node, words):
    """Three ranks with other samples each, who are not on the same nodes in one stage as in the other: sums of three numbers depend on their order.
    So do the sums of four ranks with other tokens, of which one group is on one node, and the other on two."""
    done = cluster.run(["srun", "-N2", f"-n{ranks}", "--distribution=block:block", f"--ntasks-per-node={per_node}", "--dp-world=auto", division, TRAINER,
                        *GPT, *words, "--steps=20", "--batch-size=2", "--accumulate=2"], cwd="/home/alice", timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert summary(done)["parameters_equal_on_all_ranks"] is True


@pytest.mark.parametrize("per_node", [2, 1])
def test_interleaved_stages_learn_what_one_rank_learns(cluster, per_node):
    """Two stages that are each other's neighbours on both sides."""
    done = train(cluster, 2, "--dp-pipeline=2", "--pipeline-schedule=interleaved", "--num-layers=4", "--steps=40", "--batch-size=2", "--accumulate=4",
                 per_node=per_node)
    plain = train(cluster, 1, "--num-layers=4", "--steps=40", "--batch-size=8")
    assert summary(done)["final_loss"] == pytest.approx(summary(plain)["final_loss"], rel=1e-5)
    assert (summary(done)["pipeline_parallel"], summary(done)["virtual_stages"]) == (2, 2)
    assert re.search(r"2 ranks, tensor 1 pipeline 2 data 1, virtual stages 2, micro-batches 4, bubble \d+ %; ", done.stdout), done.stdout
    cluster.assert_nothing_left()


@pytest.mark.parametrize("ranks, tensor, stages, per_node, words", [
    (2, 2, 1, 2, []), (2, 2, 1, 1, []), (4, 2, 2, 2, ["--accumulate=2"]), (4, 4, 1, 2, ["--recompute"]), (8, 2, 2, 4, ["--accumulate=2", "--shard-optimizer"])])
def test_ranks_that_divide_the_tokens_too_learn_what_one_learns(cluster, alone, ranks, tensor, stages, per_node, words):
    """In a node's memory, by Gloo alone, with ranks of a layer on two nodes, and with stages, which send each other their part of the tokens."""
    data, accumulate = ranks // tensor // stages, 2 if "--accumulate=2" in words else 1
    done = train(cluster, ranks, f"--dp-tensor={tensor}", f"--dp-pipeline={stages}", "--sequence-parallel", "--steps=40",
                 f"--batch-size={8 // data // accumulate}", *words, per_node=per_node)
    result = summary(done)
    assert result["final_loss"] == pytest.approx(alone["final_loss"], rel=1e-5)
    assert result["test_loss"] == pytest.approx(alone["test_loss"], rel=1e-5)
    assert result["parameters_equal_on_all_ranks"] is True and result["sequence_parallel"] is True
    assert f"{ranks} ranks, tensor {tensor} with sequence parallel " in done.stdout
    cluster.assert_nothing_left()


def test_layers_are_divided_so_that_stages_take_as_long(cluster):
    """By themselves or as they are told to be, they learn the same to the bit, and a checkpoint of one is read by the other."""
    words = ["--dp-pipeline=2", "--num-layers=6", "--vocab-size=1200", "--batch-size=2", "--accumulate=4"]
    hashes = set()
    for split, layers, line in ((["--steps=20"], [4, 2], ", layers 4,2, "), (["--steps=20", "--pipeline-split=even"], [3, 3], " data 1, micro-batches"),
                                (["--steps=20", "--pipeline-split=1,5"], [1, 5], ", layers 1,5, ")):
        done = train(cluster, 2, *words, "--clip-grad=1e9", *split)
        assert summary(done)["pipeline_layers"] == layers and line in done.stdout, done.stdout
        hashes.add(summary(done)["parameters_hash"])
    cluster.run(["rm", "-rf", "split"], cwd="/home/alice", check=True)
    train(cluster, 2, *words, "--clip-grad=1e9", "--steps=10", "--pipeline-split=even", "--eval-interval=10", "--checkpoint-dir=split", "--lr-decay-iters=20")
    again = summary(train(cluster, 2, *words, "--clip-grad=1e9", "--steps=20", "--checkpoint-dir=split", "--lr-decay-iters=20"))
    assert again["resumed_from_step"] == 10 and again["pipeline_layers"] == [4, 2]
    assert len(hashes | {again["parameters_hash"]}) == 1
    cluster.assert_nothing_left()


def test_a_copy_that_nobody_keeps_is_told_of(cluster):
    done = train(cluster, 2, "--dp-tensor=2", "--steps=2", "--shard-optimizer", "--peer-copy=1")
    assert done.stdout.count("--peer-copy does nothing: a part of a divided model dies with its rank") == 1, done.stdout
    done = train(cluster, 2, "--dp-tensor=2", "--steps=2", "--shard-optimizer")
    assert "--peer-copy" not in done.stdout


def test_a_pipeline_needs_no_more_than_its_option(cluster):
    """The default batch becomes micro-batches."""
    result = summary(train(cluster, 4, "--dp-tensor=2", "--dp-pipeline=2", "--steps=2"))
    assert (result["tensor_parallel"], result["pipeline_parallel"], result["global_batch_size"]) == (2, 2, 8)


def test_the_line_of_megatron_tells_the_shape(cluster):
    done = train(cluster, 4, "--tensor-model-parallel-size=2", "--steps=2", "--log-style=megatron")
    assert ("using world size: 4, data-parallel-size: 2, tensor-model-parallel size: 2, pipeline-model-parallel size: 1" in done.stdout)


def test_it_goes_on_in_any_shape(cluster, alone):
    """Two stages of two ranks on two nodes, then one rank, then four ranks for each layer."""
    cluster.run(["rm", "-rf", "divided"], cwd="/home/alice", check=True)
    saved = ["--checkpoint-dir=divided", "--eval-interval=10"]
    train(cluster, 4, "--dp-tensor=2", "--dp-pipeline=2", "--steps=10", "--batch-size=2", "--accumulate=4", *saved)
    one = train(cluster, 1, "--steps=20", "--batch-size=8", *saved)
    assert "from step 10" in one.stdout or "step-000000010" in one.stdout, one.stdout
    last = summary(train(cluster, 4, "--dp-tensor=4", "--steps=40", "--batch-size=8", *saved))
    assert last["resumed_from_step"] == 20
    assert last["final_loss"] == pytest.approx(alone["final_loss"], rel=1e-5)
    # And everybody reads it.
    written = cluster.run([TRAINER, "generate", "--checkpoint-dir=divided", "--data-dir=divided.tokens", "--tokens=20"], cwd="/home/alice")
    assert written.returncode == 0 and len(written.stdout) >= 20, written.stderr


@pytest.mark.skipif(not os.path.exists(os.path.join(EMULATED, "libdp-trainer-cuda.so")),
                    reason="this build has no emulated GPU: that needs the headers of CUDA (DP_CUDA=ON), and no sanitizers")
def test_two_nodes_of_two_emulated_gpus_learn_what_one_learns(cluster):
    """The tutorial's hybrid run, in bf16: the GPUs of a node divide the layers, and the nodes are the stages of a pipeline."""
    words = [*(word for word in GPT if word != "--device=cpu"), "--device=cuda", "--bf16", "--steps=2", "--samples=32"]
    results = []
    for where, more in ((["-N1", "-n1"], ["--batch-size=8"]),
                        (["-N2", "-n4", "--ntasks-per-node=2", "--dp-tensor=2", "--dp-pipeline=2"], ["--batch-size=2", "--accumulate=4"])):
        done = cluster.run(["srun", *where, f"--export=ALL,LD_LIBRARY_PATH={EMULATED}", "--dp-world=auto", TRAINER, *words, *more],
                           cwd="/home/alice", timeout=180)
        assert done.returncode == 0, done.stdout + done.stderr
        results.append(summary(done))
    one, four = results
    assert four["final_loss"] == pytest.approx(one["final_loss"], rel=1e-4) and four["test_loss"] == pytest.approx(one["test_loss"], rel=1e-4)
    assert (four["communicator"], four["tensor_parallel"], four["pipeline_parallel"], four["nodes"]) == ("nccl", 2, 2, 2)
    assert four["parameters_equal_on_all_ranks"] is True
    cluster.assert_nothing_left()


@pytest.mark.parametrize("ranks, words, complaint", [
    (4, ["--tensor-parallel=4", "--num-attention-heads=2"], "--tensor-parallel 4 does not divide --num-attention-heads 2; give 1 or 2"),
    (2, ["--dp-tensor=2", "--tensor-parallel=1"], "--tensor-parallel 1, but the step has --dp-tensor=2; give the same, or leave one out"),
    (4, ["--tensor-parallel=3"], "4 ranks cannot be divided by --tensor-parallel 3; give 1, 2 or 4, or a multiple of 3 ranks"),
    (2, ["--dp-tensor=2", "--model=linear"], "linear is not divided among ranks; leave --dp-tensor=2 out, or give --model=gpt"),
    (4, ["--dp-pipeline=4"], "--dp-pipeline=4 is more than --num-layers 2; give 1 or 2"),
    (2, ["--dp-pipeline=2", "--batch-size=4"], "--dp-pipeline=2 needs at least 2 micro-batches a step, and --accumulate is 1; give --accumulate 2 or "
                                               "more, each of --batch-size samples"),
    (2, ["--dp-pipeline=2", "--pipeline-schedule=interleaved"], "--dp-pipeline=2 x 2 virtual stages is 4, more than --num-layers 2; give "
                                                                "--pipeline-schedule=1f1b"),
    (2, ["--dp-pipeline=2", "--accumulate=2", "--pipeline-split=2,1"], "--pipeline-split 2,1 has 3 layers, and --num-layers is 2; give 2 numbers with the "
                                                                       "sum 2, such as 1,1"),
    (2, ["--dp-pipeline=2", "--accumulate=2", "--pipeline-split=1,1,1"], "--pipeline-split 1,1,1 has 3 stages, and --dp-pipeline=2 makes 2; give 2 numbers with "
                                                                         "the sum 2, such as 1,1"),
    (2, ["--dp-tensor=2", "--pipeline-split=2"], "--pipeline-split with numbers divides layers among the stages of a pipeline, and there are none; give "
                                                 "--pipeline-parallel 2 or more, or leave it out"),
    (2, ["--dp-pipeline=2", "--accumulate=2", "--sequence-parallel"], "--sequence-parallel divides tokens among the ranks that divide each layer, and none do; "
                                                                      "give --tensor-parallel 2 or more, or leave it out"),
    (2, ["--dp-tensor=2", "--sequence-parallel", "--seq-length=31"], "--sequence-parallel: --seq-length 31 is not a multiple of --dp-tensor=2; give 30 or 32, "
                                                                     "or leave it out"),
])
def test_what_cannot_be_divided_is_refused_in_one_line(cluster, ranks, words, complaint):
    if "--model=linear" in words:
        dp = [word for word in words if word.startswith("--dp-")]
        done = cluster.run(["srun", "-N2", f"-n{ranks}", "--dp-world=auto", *dp, TRAINER, "--model=linear"], cwd="/home/alice", timeout=60)
    else:
        done = train(cluster, ranks, *words, code=2)
    assert done.returncode == 2
    assert done.stderr.count(complaint) == 1, done.stderr
    cluster.assert_nothing_left()


def test_ranks_with_other_cpus_do_not_divide_a_model(cluster):
    """What each of them computes of the whole would not be the same, and nobody would see it before the end."""
    done = cluster.run(["srun", "-N2", "-n2", "--dp-world=auto", "--dp-tensor=2", "sh", "-c",
                        f"OMP_NUM_THREADS=$((1 + RANK)) exec {TRAINER} {' '.join(GPT)} --steps=2"], cwd="/home/alice", timeout=60)
    assert done.returncode == 5, done.stderr
    assert "the CPUs of a rank" in done.stderr and "OMP_NUM_THREADS" in done.stderr, done.stderr
    cluster.assert_nothing_left()


@pytest.mark.parametrize("words", [["--deterministic"], ["--shard-optimizer"], ["--accumulate=2", "--batch-size=2"], ["--profile=divided.profile"],
                                   ["--sequence-parallel", "--profile=divided.profile"],
                                   ["--dump-parameters=divided.f32"]])
def test_it_goes_with_other_options(cluster, alone, words):
    result = summary(train(cluster, 4, "--dp-tensor=2", "--steps=40", "--batch-size=4", *words))
    assert result["final_loss"] == pytest.approx(alone["final_loss"], rel=1e-5) and result["parameters_equal_on_all_ranks"] is True
    if "--dump-parameters=divided.f32" in words:
        assert os.path.getsize(cluster.host_path("/home/alice/divided.f32")) == 4 * alone["parameters"]


@pytest.mark.parametrize("division", [["--dp-tensor=2"], ["--dp-tensor=2", "--sequence-parallel"], ["--dp-pipeline=2", "--accumulate=4"],
                                      ["--dp-pipeline=2", "--accumulate=4", "--pipeline-schedule=gpipe"],
                                      ["--dp-pipeline=2", "--accumulate=4", "--num-layers=8", "--pipeline-split=1,7"]])
def test_the_memory_that_it_asks_for_is_enough(cluster, division):
    """Also for its checkpoints and for the end."""
    done = train(cluster, 2, *division, "--steps=4", "--batch-size=4", per_node=2)
    (line,) = re.findall(r"memory per rank: (.*)", done.stdout)
    needs = max(re.findall(r"(?:^|on another stage )([\d.]+) MiB", line), key=float)
    cluster.run(["rm", "-rf", "limited"], cwd="/home/alice", check=True)
    train(cluster, 2, *division, "--steps=4", "--batch-size=4", f"--memory-limit={float(needs) + 0.1:.1f}MiB", "--checkpoint-dir=limited",
          per_node=2)


def test_measuring_and_telling_know_the_shape(cluster):
    done = cluster.run(["srun", "-N1", "-n2", "--dp-world=auto", "--dp-tensor=2", TRAINER, "measure-performance", *GPT, "--batch-size=4", "--iterations=3",
                        "--warmup=1"], cwd="/home/alice", timeout=60, check=True)
    measured = json.loads(done.stdout.splitlines()[-1])
    assert measured["global_batch_size"] == 4 and measured["tensor_parallel"] == 2
    whole, part = (json.loads(cluster.run([TRAINER, "info", *GPT, *words], cwd="/home/alice", check=True).stdout.splitlines()[-1])
                   for words in ([], ["--tensor-parallel=2", "--ranks=2"]))
    assert part["parameters"] == whole["parameters"]
    for command, words, complaint in (("info", ["--tensor-parallel=3", "--ranks=3"], "--tensor-parallel 3 does not divide --num-attention-heads 4"),
                                      ("compile", ["--tensor-parallel=2"], "--tensor-parallel 2: plans are of whole models"),
                                      ("compile", ["--sequence-parallel"], "--sequence-parallel: plans are of whole models"),
                                      ("compile", ["--pipeline-split=even"], "--pipeline-split: plans are of whole models"),
                                      ("compile", ["--pipeline-parallel=2"], "--pipeline-parallel 2: plans are of whole models")):
        refused = cluster.run([TRAINER, command, *GPT, *words], cwd="/home/alice")
        assert refused.returncode == 2 and complaint in refused.stderr, refused.stderr


@pytest.mark.parametrize("division", ["--dp-tensor=2", "--dp-pipeline=2"])
@pytest.mark.parametrize("victim", [0, 3])
def test_a_rank_that_dies_ends_all_others_alike(cluster, victim, division):
    """Whichever of its groups had the dead one."""
    codes = codes_where_one_is_killed(cluster, victim, f"{TRAINER} {' '.join(GPT)} --epochs=1000", division)
    assert codes == {str(rank): "137" if rank == victim else "4" for rank in range(4)}
    cluster.assert_nothing_left()


def test_a_death_begins_all_again_from_the_checkpoint(cluster):
    """A part of a model dies with its rank, so nobody goes on with what is in memory."""
    cluster.run(["rm", "-rf", "restarted", "restarted.jsonl"], cwd="/home/alice", check=True)
    step = cluster.popen(["srun", "-N2", "--ntasks-per-node=2", "--dp-world=auto", "--dp-tensor=2", "--dp-on-failure=restart", TRAINER, *GPT,
                          "--steps=1500", "--checkpoint-dir=restarted", "--save-interval=50", "--log-interval=10", "--metrics=restarted.jsonl"],
                         cwd="/home/alice")
    metrics = pathlib.Path(cluster.host_path("/home/alice/restarted.jsonl"))
    until(lambda: metrics.exists() and metrics.read_text(encoding="utf-8").count('"step"') > 12, 60, "120 steps")
    victims = []
    for process in cluster.processes(["node02"]):
        if process["command"].startswith(TRAINER):
            with open(f"/proc/{process['pid']}/environ", "rb") as file:
                if b"\0RANK=3\0" in b"\0" + file.read():
                    victims.append(process["pid"])
    assert len(victims) == 1
    os.kill(victims[0], signal.SIGKILL)
    out, err = step.communicate(timeout=120)
    assert step.returncode == 0, out + err
    result = json.loads(out.splitlines()[-1])
    assert result["resumed_from_step"] >= 50 and result["parameters_equal_on_all_ranks"] is True
    assert "rank 3 on node02 was killed by signal 9 (SIGKILL)" in err
    cluster.assert_nothing_left()
