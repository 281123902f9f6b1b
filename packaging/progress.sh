# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by packaging/quickstart, packaging/install-dependencies and tests/run: shows what they are doing while it takes long, and
# ends what they have started when they are interrupted.
#
#   step TEXT                  a line with the seconds since the script began
#   quietly LOG CMD…           runs CMD with its output in LOG; a sign of life every 10 s; shows the end of LOG where CMD fails
#   loudly CMD…                runs CMD with its output on the terminal
#   end_job [SIGNAL] [SECONDS] ends what quietly or loudly is running; for the script's trap
#
# Commands run as jobs in process groups of their own and the script waits for them: so its traps run at once, whoever sent the
# signal and to whom, and one signal ends a whole build. A job whose script is killed with SIGKILL is terminated (setpriv), and holds
# no lock of the script (file descriptor 9).

# A shell's background job ignores SIGINT, and no trap can change that; then begin again without.
if [ $((0x$(awk '$1 == "SigIgn:" { print $2 }' "/proc/$$/status") & 2)) != 0 ]; then
    exec env --default-signal=INT "$0" "$@"
fi

progress_began=$SECONDS
progress_job=

step() {
    printf '[%4d s] %s\n' $((SECONDS - progress_began)) "$*"
}

start_job() {
    set -m
    "$@" </dev/null 9>&- &
    progress_job=$!
    set +m
}

finish_job() {
    local status=0
    wait "$progress_job" || status=$?
    progress_job=
    return "$status"
}

loudly() {
    start_job setpriv --pdeathsig TERM "$@"
    finish_job
}

quietly() {
    local log=$1 status=0 shown=$SECONDS
    shift
    start_job with_output_in "$log" "$@"
    while kill -0 "$progress_job" 2>/dev/null; do
        sleep 0.2
        if [ $((SECONDS - shown)) -ge 10 ]; then
            shown=$SECONDS
            # Carriage returns and colours would spoil the line.
            step "  … $(tail -c 2000 "$log" | tr '\r' '\n' | awk 'NF { line = $0 } END { print line }' | tr -cd '[:print:]' | cut -c 1-110)"
        fi
    done
    finish_job || status=$?
    if [ "$status" != 0 ]; then
        tail -n 40 "$log" >&2
        echo "(the whole output is in $log)" >&2
    fi
    return "$status"
}

with_output_in() {
    local log=$1
    shift
    exec setpriv --pdeathsig TERM "$@" >"$log" 2>&1
}

# $1: the signal (TERM); $2: after how many seconds it is killed (10).
end_job() {
    [ -n "$progress_job" ] || return 0
    local deadline=$((SECONDS + ${2-10})) shown=$SECONDS
    kill "-${1-TERM}" -- "-$progress_job" 2>/dev/null || true
    while kill -0 -- "-$progress_job" 2>/dev/null; do
        if [ $SECONDS -ge "$deadline" ]; then
            kill -KILL -- "-$progress_job" 2>/dev/null || true
            break
        fi
        if [ $((SECONDS - shown)) -ge 3 ]; then
            shown=$((SECONDS + 10))
            step "  … waiting for what is being done to come to an end"
        fi
        sleep 0.1
    done
    progress_job=
}
