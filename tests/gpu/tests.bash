# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# The tests of tests/gpu/run, which reads this file: each a function that ends with pass, miss or skip, in the order in which
# they run. What they share: $bin, $work, $gpus, $here, $torch_models, $slurm_dp_package, data_options, and ours(), which runs a
# program of ours. None takes more than 8 minutes.

models=(linear ffn cnn unet2d gpt)
precisions=(fp32 bf16)
short=(--steps=20 --epochs=20)

# ---- helpers ------------------------------------------------------------------------------------------------------------
# train NAME RANKS ARGUMENT...: through dpctl launch; output and summary in $work/NAME.*; the exit code of the launch.
train() {
    local name=$1 ranks=$2
    shift 2
    ours timeout 300 "$bin/dpctl" launch -n "$ranks" -- "$bin/trainer" --json "$work/$name.json" "$@" > "$work/$name.log" 2>&1
}
field() { sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p" "$work/$1.json" 2> /dev/null; }
tail_of() { tail -3 "$work/$1.log" | tr '\n' ' '; }
holds() { awk "BEGIN { exit !($1) }"; }
# close LOSS LOSS [PART]: true where both are numbers and within that part of the second (default 0.02).
close() {
    local number='^-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?$'
    [[ $1 =~ $number && $2 =~ $number ]] && holds "($1 - $2)^2 <= (${3:-0.02} * $2)^2"
}

# Tokens for gpt: this file's bytes, often enough for some batches of 1024.
make_tokens() {
    [ ! -d "$work/tokens" ] || return 0
    for _ in {1..60}; do cat "$here/tests.bash"; done > "$work/text.txt"
    ours "$bin/trainer" prepare --text "$work/text.txt" --tokenizer=bytes --output "$work/tokens" > "$work/prepare.log" 2>&1 ||
        say "no tokens for gpt: $(head -1 "$work/prepare.log")"
}

# small_run MODEL: sets `small` to the options of a run that a CPU does in seconds.
small_run() {
    small=(--model="$1" --steps=20 --epochs=20 "${data_options[@]}")
    case $1 in
        unet2d) small+=(--batch-size=2 --init-features=4 --samples=60) ;;
        # Heads of 24 numbers, as Megatron's tutorial has them.
        gpt)
            make_tokens
            small=(--model=gpt --steps=20 --epochs=20 --batch-size=4 --num-layers=2 --hidden-size=96 --num-attention-heads=4
                --seq-length=100 --data-dir "$work/tokens")
            ;;
    esac
}

# own_host: a wrapper with which NCCL takes the ranks on one GPU for two machines: else it refuses them. Where there are
# several GPUs, each has a rank and the wrapper does nothing. `ranks` is how many there are then.
own_host() {
    ranks=$gpus
    printf '#!/bin/sh\nexec "$@"\n' > "$work/own-host"
    if [ "$gpus" = 1 ]; then
        ranks=2
        printf '#!/bin/sh\nNCCL_HOSTID=slurm-dp-rank-$DP_RANK exec "$@"\n' > "$work/own-host"
    fi
    chmod +x "$work/own-host"
}
# over_nccl NAME ARGUMENT...: as train, on as many ranks as there are GPUs, or on two of one GPU.
over_nccl() {
    local name=$1
    shift
    own_host
    NCCL_DEBUG=INFO ours timeout 300 "$bin/dpctl" launch -n "$ranks" -- "$work/own-host" "$bin/trainer" --json "$work/$name.json" \
        --device=cuda "${short[@]}" "${data_options[@]}" "$@" > "$work/$name.log" 2>&1
}
# refused_by_nccl NAME CODE: whether NCCL would not have two ranks on the one GPU that there is.
refused_by_nccl() { [ "$2" != 0 ] && [ "$gpus" = 1 ] && grep -q 'over NCCL\|NCCL WARN' "$work/$1.log"; }
skip_refused() { skip "unsupported by NCCL here: $(grep -m1 'over NCCL\|NCCL WARN' "$work/$1.log")"; }

# ---- speed --------------------------------------------------------------------------------------------------------------
peak=989e12  # of dense bf16, on an H100 or H200
speed_line() { # speed_line WHO SAMPLES_PER_SECOND BYTES FLOPS_PER_TOKEN BATCH
    awk -v who="$1" -v rate="$2" -v bytes="$3" -v flops="$4" -v batch="$5" -v peak=$peak 'BEGIN {
        printf "  %-32s %8d %12.0f %8.1f %10.1f\n", who, batch, rate * 1024, 100 * rate * 1024 * flops / peak, bytes / 2^30 }'
}

# attention_times NAME: what `trainer compile` said in that log of each pass, "attention 64 12 1024 64: ours: cuDNN takes ...".
attention_times() { grep -E '^(the gradient of )?attention( [0-9]+){4}: ' "$work/$1.log" | sed 's/^/  /'; }

# GPT-2 124M, sequences of 1024, bf16: the largest of these batches that fits. One rank, so that the peer needs no more.
gpt_speed() {
    local large batch rate flops python theirs="PyTorch: not installed here, or without CUDA"
    make_tokens
    large=(--model=gpt --gpt-size=124M --vocab-size=50257 --precision=bf16 --device=cuda --data-dir "$work/tokens" --cache-dir "$work/cache")
    for batch in 64 32 16 8; do
        # As PyTorch compiles its model below: cuBLASLt's algorithms are tried, and the fastest taken.
        ours timeout 120 "$bin/trainer" compile "${large[@]}" --batch-size=$batch > "$work/compile.log" 2>&1
        ours timeout 120 "$bin/trainer" measure-performance "${large[@]}" --batch-size=$batch --warmup=5 --iterations=20 \
            --json "$work/speed.json" > "$work/speed.log" 2>&1 && break
        rm -f "$work/speed.json"
    done
    rate=$(field speed samples_per_second)
    if [ -z "$rate" ]; then
        miss "$(tail -1 "$work/speed.log")"
        return
    fi
    # The trainer's own count of what a sample takes, both passes.
    flops=$(awk "BEGIN { print $(field speed flops_per_second) / $rate / 1024 }")
    for python in python3 python; do
        if ! "$python" -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; then continue; fi
        if timeout 220 "$python" -B "$here/torch_gpt.py" "$torch_models" "$batch" 5 20 > "$work/torch.json" 2> "$work/torch.log"; then
            theirs=$(speed_line "PyTorch $(field torch version | tr -d '" ')" "$(field torch samples_per_second)" \
                "$(field torch memory_peak_bytes)" "$flops" "$batch")
        else
            theirs="  PyTorch: $(tail -1 "$work/torch.log")"
        fi
        break
    done
    echo
    echo "GPT-2 124M, sequences of 1024, bf16, one GPU; MFU of 989 TFLOP/s"
    printf '  %-32s %8s %12s %8s %10s\n' "" batch tokens/s "MFU %" "peak GiB"
    speed_line "slurm-dp" "$rate" "$(field speed memory_peak_bytes)" "$flops" "$batch"
    echo "$theirs"
    echo "  a step of slurm-dp: $(grep -m1 'not tuned' "$work/compile.log" | tr -s ' ' || echo "not tuned: $(tail -1 "$work/compile.log")")"
    attention_times compile
    echo
    pass "$(awk "BEGIN { printf \"%.0f\", $rate * 1024 }") tokens/s"
}
gpu_test "gpt 124M: speed in bf16" gpt_speed

# ---- one GPU ------------------------------------------------------------------------------------------------------------
unit_tests() {
    if ours env DP_TESTS_REQUIRE_CUDA=1 timeout 300 "$bin/trainer-tests" --gtest_filter='*/cuda:*/cuda_bf16:GpuPart.*' > "$work/unit.log" 2>&1; then
        pass "$(sed -n 's/^\[  PASSED  \] //p' "$work/unit.log")"
    else
        miss "$(grep -A 8 -E 'Failure' "$work/unit.log" | head -60)"
    fi
}
gpu_test "unit tests of the CUDA device" unit_tests

# Against float64, and twice; whichever way is faster here.
attention_by_cudnn() {
    if ! ours env DP_TESTS_REQUIRE_CUDA=1 timeout 120 "$bin/trainer-tests" --gtest_filter='AttentionByCudnn.*' > "$work/attention.log" 2>&1; then
        miss "$(grep -A 8 -E 'Failure' "$work/attention.log" | head -40)"
    elif grep -q '^\[  SKIPPED \]' "$work/attention.log"; then
        skip "$(attention_times attention | head -2 | tr -s ' \n' ' ')"
    else
        attention_times attention
        pass "$(sed -n 's/^\[  PASSED  \] //p' "$work/attention.log"), $(attention_times attention | grep -c 'cuDNN takes') passes by cuDNN"
    fi
}
gpu_test "attention by cuDNN: numbers and bits" attention_by_cudnn

# What compile chooses is what a training does: it comes to the same bits twice, and to the steps of our kernels but for rounding.
attention_chosen() {
    local run near_loss=0.003 cache taken options
    head -c 12000 "$here/tests.bash" > "$work/short.txt"
    ours "$bin/trainer" prepare --text "$work/short.txt" --tokenizer=bytes --output "$work/short-tokens" > "$work/prepare-short.log" 2>&1
    options=(--model=gpt --num-layers=1 --hidden-size=48 --num-attention-heads=2 --seq-length=40 --batch-size=4 --samples=60 --steps=8 --epochs=8
        --data-dir "$work/short-tokens" --precision=bf16 --device=cuda)
    ours timeout 120 "$bin/trainer" compile "${options[@]}" --cache-dir "$work/attention-cache" > "$work/attention-compile.log" 2>&1
    if [ "$(attention_times attention-compile | wc -l)" != 2 ]; then
        miss "compile says nothing of a choice: $(tail_of attention-compile)"
        return
    fi
    # What the trainings then go by: a choice of cuDNN's is kept only where a whole step is faster.
    taken="$(attention_times attention-compile | grep ': cudnn ' | grep -vc ', not kept: ') of 2 passes by cuDNN"
    for run in one two without; do
        cache=$work/attention-cache
        [ $run != without ] || cache=$work/no-cache
        train "attention-$run" 1 "${options[@]}" --cache-dir "$cache"
    done
    if [ -n "$(field attention-one parameters_hash)" ] && [ "$(field attention-one parameters_hash)" = "$(field attention-two parameters_hash)" ] &&
        close "$(field attention-one final_loss)" "$(field attention-without final_loss)" $near_loss; then
        attention_times attention-compile
        pass "$taken; loss $(field attention-one final_loss), without a plan $(field attention-without final_loss); parameters $(field attention-one parameters_hash)"
    else
        miss "parameters $(field attention-one parameters_hash) and $(field attention-two parameters_hash), loss $(field attention-one final_loss), without a plan $(field attention-without final_loss): $(tail_of attention-one)"
    fi
}
gpu_test "attention by cuDNN: compile's choice" attention_chosen

ffn_on_gpu() {
    local code accuracy
    NCCL_DEBUG=INFO train ffn-gpu "$gpus" --model=ffn --device=cuda "${data_options[@]}"
    code=$?
    accuracy=$(field ffn-gpu test_accuracy)
    if [ $code = 0 ] && holds "${accuracy:-0} >= 0.85" && [ "$(field ffn-gpu communicator)" = '"nccl"' ]; then
        pass "$gpus rank(s), test accuracy $accuracy, $(field ffn-gpu samples_per_second) samples/s"
    else
        miss "exit $code, accuracy ${accuracy:-none}: $(tail_of ffn-gpu)"
    fi
}
gpu_test "ffn on the GPU" ffn_on_gpu

linear_on_gpu() {
    local code loss
    train linear-gpu "$gpus" --model=linear --device=cuda
    code=$?
    loss=$(field linear-gpu test_loss)
    if [ $code = 0 ] && holds "\"$loss\" != \"\" && ${loss:-1} < 1e-4"; then
        pass "$gpus rank(s), test loss $loss, $(field linear-gpu samples_per_second) samples/s"
    else
        miss "exit $code, test loss ${loss:-none}: $(tail_of linear-gpu)"
    fi
}
gpu_test "linear on the GPU" linear_on_gpu

# The first steps, before roundings add up: the same samples in the same order on both devices. Each step's loss, and its gradient by the
# norm. (What the CPU computes is compared with float64 by the unit tests.) bf16 has 8 bits, and the devices round at different places.
steps_as_on_cpu() { # MODEL PRECISION
    local run=$1-$2 device line loss_gpu norm_gpu loss_cpu norm_cpu compared=0 near_loss=1e-4 near_norm=1e-3
    [ "$2" = fp32 ] || near_loss=0.003 near_norm=0.05
    small_run "$1"
    for device in cuda cpu; do
        train "$run-$device" "$gpus" "${small[@]}" --steps=3 --device=$device --precision="$2" --clip-grad=1e9 --log-interval=1 \
            --metrics "$work/$run-$device.metrics"
        sed -nE '/"event":"step"/s/.*"loss":([^,]*),.*"gradient_norm":([^,]*),.*/\1 \2/p' "$work/$run-$device.metrics" > "$work/$run-$device.steps"
    done
    while read -r loss_gpu norm_gpu loss_cpu norm_cpu; do
        line="loss $loss_gpu, on the CPU $loss_cpu; norm $norm_gpu, on the CPU $norm_cpu"
        if close "$loss_gpu" "$loss_cpu" $near_loss && close "$norm_gpu" "$norm_cpu" $near_norm; then compared=$((compared + 1)); else break; fi
    done < <(paste -d ' ' "$work/$run-cuda.steps" "$work/$run-cpu.steps")
    if [ $compared = 3 ]; then
        pass "step 3: $line"
    else
        miss "step $((compared + 1)): ${line:-none}: $(tail_of "$run-cuda") $(tail_of "$run-cpu")"
    fi
}
for precision in "${precisions[@]}"; do
    for model in "${models[@]}"; do gpu_test "$model, $precision: steps as on the CPU" steps_as_on_cpu "$model" "$precision"; done
done

# 40 steps, and 20 with 20 more after them, end with the same bits.
resumes() {
    local options=(--model=ffn --device=cuda --epochs=40 --deterministic "${data_options[@]}") part
    for part in whole first second; do
        train "resumed-$part" "$gpus" "${options[@]}" --steps="$([ $part = first ] && echo 20 || echo 40)" \
            --checkpoint-dir "$work/checkpoint-$([ $part = whole ] && echo whole || echo parts)"
    done
    if [ -n "$(field resumed-whole parameters_hash)" ] &&
        [ "$(field resumed-whole parameters_hash)" = "$(field resumed-second parameters_hash)" ]; then
        pass "parameters $(field resumed-whole parameters_hash)"
    else
        miss "$(field resumed-whole parameters_hash) against $(field resumed-second parameters_hash): $(tail_of resumed-whole) $(tail_of resumed-second)"
    fi
}
gpu_test "a checkpoint continues to the same bits" resumes

# Whatever is captured, the bits are the same; and what a step takes without graphs and with them.
graphs() { # MODEL
    local mode words=(--model="$1" --device=cuda "${data_options[@]}")
    for mode in off on; do
        train "graphs-$mode" "$gpus" "${words[@]}" --steps=40 --cuda-graphs=$mode
        train "graphs-speed-$mode" 1 measure-performance "${words[@]}" --cuda-graphs=$mode
    done
    if grep -q 'went on without graphs' "$work/graphs-on.log"; then
        miss "$(grep 'went on without graphs' "$work/graphs-on.log")"
    elif [ -n "$(field graphs-off parameters_hash)" ] && [ "$(field graphs-off parameters_hash)" = "$(field graphs-on parameters_hash)" ]; then
        pass "parameters $(field graphs-on parameters_hash); samples/s $(field graphs-speed-off samples_per_second), with graphs $(field graphs-speed-on samples_per_second)"
    else
        miss "$(field graphs-off parameters_hash) against $(field graphs-on parameters_hash): $(tail_of graphs-off) $(tail_of graphs-on)"
    fi
}
for model in cnn ffn; do gpu_test "$model: the same bits with CUDA graphs" graphs $model; done

# One line, with what would help; and the next program has the whole GPU again.
out_of_memory() {
    local code line
    make_tokens
    train exhausted 1 --model=gpt --gpt-size=1.5B --vocab-size=50257 --precision=bf16 --device=cuda --data-dir "$work/tokens" --batch-size=512 --steps=1
    code=$?
    line=$(grep -m1 'trainer' "$work/exhausted.log")
    if [ $code = 5 ] && grep -q -- '--batch-size' <<< "$line"; then pass "$line"; else miss "exit $code: $(tail_of exhausted)"; fi
}
gpu_test "more than the GPU's memory" out_of_memory

# ---- several ranks ------------------------------------------------------------------------------------------------------
two_ranks() {
    local code gpu cpu
    if [ "$gpus" -gt 1 ]; then
        skip "there are $gpus GPUs, and each has had a rank"
        return
    fi
    over_nccl two-gpu --model=ffn
    code=$?
    train two-cpu 2 --model=ffn --device=cpu "${short[@]}" "${data_options[@]}"
    gpu=$(field two-gpu final_loss)
    cpu=$(field two-cpu final_loss)
    if [ $code = 0 ] && close "${gpu:-}" "${cpu:-}"; then
        pass "loss $gpu, two CPU ranks $cpu"
    elif refused_by_nccl two-gpu $code; then
        skip_refused two-gpu
    else
        miss "exit $code, GPU ${gpu:-none}, CPU ${cpu:-none}: $(tail_of two-gpu)"
    fi
}
gpu_test "two ranks on one GPU" two_ranks

sharded() {
    local code gpu cpu options=(--model=ffn --shard-optimizer --accumulate=2 --clip-grad=1)
    over_nccl sharded-gpu "${options[@]}"
    code=$?
    train sharded-cpu "$ranks" --device=cpu "${short[@]}" "${data_options[@]}" "${options[@]}"
    gpu=$(field sharded-gpu final_loss)
    cpu=$(field sharded-cpu final_loss)
    if [ $code = 0 ] && close "${gpu:-}" "${cpu:-}" && [ "$(field sharded-gpu parameters_equal_on_all_ranks)" = true ]; then
        pass "$ranks ranks, loss $gpu, on the CPU $cpu"
    elif refused_by_nccl sharded-gpu $code; then
        skip_refused sharded-gpu
    else
        miss "exit $code, GPU ${gpu:-none}, CPU ${cpu:-none}: $(tail_of sharded-gpu)"
    fi
}
gpu_test "ranks with a sharded optimizer, accumulation and clipping" sharded

# Two stages of two ranks each: the losses are those of one rank, in bf16 about so.
divided() { # PRECISION
    local code one here near=0.001
    if [ "$gpus" -lt 4 ]; then
        skip "needs 4 GPUs, and there are $gpus"
        return
    fi
    [ "$1" = fp32 ] || near=0.01
    small_run gpt
    train "divided-one-$1" 1 "${small[@]}" --device=cuda --precision="$1" --batch-size=8
    train "divided-$1" 4 "${small[@]}" --device=cuda --precision="$1" --tensor-parallel=2 --pipeline-parallel=2 --batch-size=2 --accumulate=4
    code=$?
    one=$(field "divided-one-$1" final_loss)
    here=$(field "divided-$1" final_loss)
    if [ $code = 0 ] && close "${here:-}" "${one:-}" $near && [ "$(field "divided-$1" parameters_equal_on_all_ranks)" = true ] &&
        [ "$(field "divided-$1" communicator)" = '"nccl"' ]; then
        pass "loss $here, of one rank $one, $(field "divided-$1" samples_per_second) samples/s"
    else
        miss "exit $code, loss ${here:-none}, of one rank ${one:-none}: $(tail_of "divided-$1") $(tail_of "divided-one-$1")"
    fi
}
for precision in "${precisions[@]}"; do gpu_test "gpt divided 2 x 2, $precision" divided "$precision"; done

# As NCCL itself says it: "0[0] -> 1[1] via P2P/IPC", of a network once for each direction, and for each channel.
nccl_ways() {
    local code ways
    over_nccl ways --model=ffn
    code=$?
    ways=$(grep -oE '[0-9]+\[[^]]*\] -> [0-9]+\[[^]]*\]( \[(send|receive)\])? via [^ ]+' "$work/ways.log" |
        sed -E 's/\[[^]]*\]//g; s/ +/ /g' | sort -V | uniq -c | sed -E 's/^ *([0-9]+) (.*)/  rank \2, \1 times/; s/-> /-> rank /')
    if [ -n "$ways" ]; then
        echo "NCCL's way between ranks, for each channel and direction"
        echo "$ways"
        pass "$(wc -l <<< "$ways") ways"
    elif refused_by_nccl ways $code; then
        skip_refused ways
    else
        miss "exit $code, and NCCL's log names none: $(tail_of ways)"
    fi
}
gpu_test "NCCL's way between ranks" nccl_ways

# The others keep their processes, and the bits at the end are those of a run that nobody disturbs.
with_deaths() {
    local name=$1
    shift
    own_host
    NCCL_DEBUG=VERSION ours timeout 200 "$bin/dpctl" launch -n "$ranks" "$@" -- "$work/own-host" "$bin/trainer" --json "$work/$name.json" \
        --device=cuda --model=ffn --steps=4000 --deterministic "${data_options[@]}" > "$work/$name.log" 2>&1
}
# kill_rank RANK: of this machine's trainers, that one.
kill_rank() {
    local process
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/exe")" = "$(readlink -f "$bin/trainer")" ] || continue
        if tr '\0' '\n' < "$process/environ" 2> /dev/null | grep -qx "DP_RANK=$1"; then kill -KILL "${process#/proc/}"; fi
    done
}
a_death() {
    local launch code hash repeated version told
    with_deaths undisturbed
    code=$?
    if refused_by_nccl undisturbed $code; then
        skip_refused undisturbed
        return
    fi
    with_deaths disturbed --on-failure=restart &
    launch=$!
    for _ in {1..600}; do
        if grep -q '^epoch 1/' "$work/disturbed.log"; then break; fi
        sleep 0.1
    done
    kill_rank 1
    wait $launch
    code=$?
    hash=$(field undisturbed parameters_hash)
    repeated=$(field disturbed steps_repeated)
    version=$(sed -n 's/.*NCCL version \([0-9.]*\).*/\1/p' "$work/disturbed.log" | head -1)
    told="${version:+NCCL $version, }recoveries $(field disturbed recoveries), seconds $(field disturbed recovery_seconds), steps repeated $repeated"
    if [ $code != 0 ] || [ -z "$hash" ] || [ "$(field disturbed parameters_hash)" != "$hash" ] || [ -z "$repeated" ]; then
        miss "exit $code, $told; $(tail_of undisturbed); $(tail_of disturbed)"
    elif [ "$repeated" = 0 ] || [ "$(printf '%s\n' 2.28.7 "${version:-0}" | sort -V | head -1)" != 2.28.7 ]; then
        pass "$told"
    else
        miss "its process should have gone on: $told; $(tail_of disturbed)"
    fi
}
gpu_test "a rank that dies, over NCCL" a_death

# with_torch ON_FAILURE PROGRAM_ARGUMENT...: torch_ranks.py on the ranks that over_nccl has; 125 where PyTorch is not installed.
with_torch() {
    local python on_failure=$1
    shift
    own_host
    for python in python3 python; do
        if ! "$python" -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; then continue; fi
        # PyTorch brings CUDA's libraries; libdp alone is ours.
        mkdir -p "$work/libdp"
        cp -P "$(dirname "$bin")"/lib/libdp.so* "$work/libdp"
        LD_LIBRARY_PATH=$work/libdp PYTHONPATH=$slurm_dp_package timeout 120 "$bin/dpctl" launch -n "$ranks" --on-failure="$on_failure" -- \
            "$work/own-host" "$python" -B "$here/torch_ranks.py" "$@" > "$work/torch-ranks.log" 2>&1
        return
    done
    return 125
}
torch_ddp() {
    local code
    with_torch abort ddp
    code=$?
    if [ $code = 125 ]; then
        skip "PyTorch is not installed here, or without CUDA"
    elif [ $code = 0 ] && [ "$(grep -c 'of one process' "$work/torch-ranks.log")" = "$ranks" ]; then
        pass "$(grep -m1 'of one process' "$work/torch-ranks.log")"
    else
        miss "exit $code: $(tail -5 "$work/torch-ranks.log")"
    fi
}
gpu_test "PyTorch's DistributedDataParallel over NCCL" torch_ddp

# Each of the others is told who died, where PyTorch alone would wait for its watchdog.
torch_death() {
    local code
    with_torch report death "$work/died"
    code=$?
    if [ $code = 125 ]; then
        skip "PyTorch is not installed here, or without CUDA"
    elif grep -q 'rank 0: RankDied after [01]\..*rank 1' "$work/torch-ranks.log"; then
        pass "$(grep -m1 'rank 0: RankDied' "$work/torch-ranks.log")"
    else
        miss "exit $code: $(tail -8 "$work/torch-ranks.log")"
    fi
}
gpu_test "a rank that dies, in PyTorch over NCCL" torch_death

# As --dp-tiles=1 gives them where tiles.conf cuts a GPU in two: each half of the SMs, reduced by Gloo.
own_tile() {
    printf '#!/bin/sh\nDP_TILE_LIST=${DP_RANK:-0} DP_TILES_PER_DEVICE=2 DP_TILE_DEVICE=0 exec "$@"\n' > "$work/own-tile"
    chmod +x "$work/own-tile"
}
tiles_of_one_gpu() {
    local code gpu cpu
    own_tile
    ours timeout 300 "$bin/dpctl" launch -n 2 -- "$work/own-tile" "$bin/trainer" --json "$work/tiles-gpu.json" --model=ffn \
        --device=cuda "${short[@]}" "${data_options[@]}" > "$work/tiles-gpu.log" 2>&1
    code=$?
    train tiles-cpu 2 --model=ffn --device=cpu "${short[@]}" "${data_options[@]}"
    gpu=$(field tiles-gpu final_loss)
    cpu=$(field tiles-cpu final_loss)
    if [ $code = 0 ] && close "${gpu:-}" "${cpu:-}" && [ "$(field tiles-gpu communicator)" = '"gloo"' ]; then
        pass "loss $gpu, two CPU ranks $cpu; $(grep -o '[0-9a-z ]* SMs[^;]*' "$work/tiles-gpu.log" | head -1)"
    else
        miss "exit $code, GPU ${gpu:-none}, CPU ${cpu:-none}: $(tail_of tiles-gpu)"
    fi
}
gpu_test "two ranks on the tiles of one GPU" tiles_of_one_gpu

compile_on_a_tile() {
    local code
    own_tile
    ours timeout 120 "$work/own-tile" "$bin/trainer" compile --model=ffn --device=cuda "${data_options[@]}" --cache-dir "$work/tile-cache" > "$work/tile-compile.log" 2>&1
    code=$?
    if [ $code = 0 ]; then pass "$(grep -m1 step "$work/tile-compile.log" | tr -s ' ')"; else miss "exit $code: $(tail_of tile-compile)"; fi
}
gpu_test "compile on a tile" compile_on_a_tile

# By CUPTI: every operation has a time of the GPU's, and the parts make up the step.
profile_on_gpu() {
    local code
    small_run gpt
    train profile 1 "${small[@]}" --device=cuda --profile="$work/profile" --profile-steps=10:15
    code=$?
    if [ $code != 0 ]; then
        miss "exit $code: $(tail_of profile)"
        return
    fi
    if python3 - "$work/profile/profile.json" > "$work/profile-check.log" 2>&1 << 'EOF'; then
import json, sys
profile = json.load(open(sys.argv[1]))
known = sum(profile["parts"].values()) + profile["other"]
assert abs(known - profile["seconds"]) < 1e-6, f"{known} s are told of {profile['seconds']} s"
assert all(profile["parts"][part] > 0 for part in ("forward", "backward", "optimizer")), profile["parts"]
silent = [row["name"] for row in profile["operations"] if sum(row["seconds"].values()) == 0]
assert not silent, f"no time of {silent}"
EOF
        pass "$(grep -m1 'profile of steps' "$work/profile.log")"
    else
        miss "$(tail_of profile-check)"
    fi
}
gpu_test "profile by CUPTI" profile_on_gpu

# ---- compute-sanitizer --------------------------------------------------------------------------------------------------
# sanitize TOOL COMMAND...: TOOL is memcheck, racecheck, initcheck or synccheck.
sanitize() {
    local tool=$1 sanitizer code
    shift
    sanitizer=$(command -v compute-sanitizer || find -L /usr/local/cuda*/bin -name compute-sanitizer 2> /dev/null | head -1)
    if [ -z "$sanitizer" ]; then
        skip "compute-sanitizer is not installed"
        return
    fi
    ours timeout 470 "$sanitizer" --tool "$tool" --error-exitcode 99 "$@" > "$work/sanitizer.log" 2>&1
    code=$?
    if [ $code = 0 ]; then
        pass "$(grep -oE '(ERROR|RACECHECK) SUMMARY: .*' "$work/sanitizer.log" | tail -1)"
    else
        miss "exit $code: $(grep -E '=========|trainer:|FAILED|Failure' "$work/sanitizer.log" | head -30)"
    fi
}

# Reads and writes outside of memory, in a few steps of each.
memcheck() { # MODEL PRECISION
    small_run "$1"
    sanitize memcheck "$bin/trainer" "${small[@]}" --steps=2 --device=cuda --precision="$2"
}
for precision in "${precisions[@]}"; do
    for model in "${models[@]}"; do gpu_test "$model, $precision: compute-sanitizer" memcheck "$model" "$precision"; done
done

# Our own kernels: under racecheck, cuBLASLt's end with a hardware exception (2025.3 on an H100).
check_kernels() { # TOOL
    sanitize "$1" "$bin/trainer-tests" --gtest_filter='Devices/*OperationsTest.*/cuda:Devices/*OperationsTest.*/cuda_bf16:Devices/OptimizerTest.*/cuda-*Linear*:*RowsOfOutputs*:*Convolution*:*VeryManyHeads*'
}
for tool in racecheck initcheck synccheck; do gpu_test "kernels: $tool" check_kernels $tool; done
