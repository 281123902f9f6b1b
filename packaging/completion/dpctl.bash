# SPDX-License-Identifier: Apache-2.0
# bash completion of dpctl; bash-completion loads it when it is needed. tests/unit/package/check compares the options with dpctl's.

_dpctl() {
    local current=${COMP_WORDS[COMP_CWORD]} words='' i
    for ((i = 1; i < COMP_CWORD; i++)); do
        # Behind -- stands a command of its own.
        [[ ${COMP_WORDS[i]} != -- ]] || { mapfile -t COMPREPLY < <(compgen -c -f -- "$current"); return; }
    done
    case ${COMP_WORDS[COMP_CWORD - 1]} in
    --daemon | --conf | --html | --trace | --web-config) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    -n | --ranks | --timeout | --hang-timeout | --slow | --record-interval | --restarts | --final-exit | --grace | --tensor | --pipeline | --node | --pid | -i | --interval | --count | --job) return ;;
    --port) words=auto ;;
    --store) words="hold torch" ;;
    --on-failure) words="abort report restart" ;;
    --preflight) words="off quick full" ;;
    --nccl-debug) words="off on" ;;
    --record | --from)
        [[ ${COMP_WORDS[COMP_CWORD - 1]} == --from ]] || words=off
        mapfile -t COMPREPLY < <(compgen -d -W "$words" -- "$current")
        compopt -o filenames
        return
        ;;
    *)
        if [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} == launch ]]; then
            words="--ranks --port --store --timeout --on-failure --hang-timeout --slow --preflight --nccl-debug --record --record-interval --restarts --final-exit --grace --tensor --pipeline --verbose --daemon --help --"
        elif [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} =~ ^(status|history)$ ]]; then
            words="--json --help"
        elif [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} =~ ^(report|ledger)$ && $current != -* ]]; then
            mapfile -t COMPREPLY < <(compgen -d -- "$current"; compgen -f -X '!*.dprecord' -- "$current")
            compopt -o filenames
            return
        elif [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} == report ]]; then
            words="--job --json --html --trace --help"
        elif [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} == ledger ]]; then
            words="--job --json --help"
        elif [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} == collect && $current != -* ]]; then
            mapfile -t COMPREPLY < <(compgen -d -- "$current")
            compopt -o filenames
            return
        elif [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} == collect ]]; then
            words="--job --from --help"
        elif [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} == tiles ]]; then
            words="--conf --node --json --help"
        elif [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} == top ]]; then
            words="--interval --once --count --csv --json --skip-idle --help"
        elif [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} == stacks ]]; then
            words="--rank --pid --threads --json --help"
        elif [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} == exporter ]]; then
            words="--listen --web-config --help"
        elif [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} == doctor ]]; then
            words="--local --json --help --"
        else
            words="collect doctor exporter history launch ledger report stacks status tiles top waterfall --help --version"
        fi
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -F _dpctl dpctl
