# SPDX-License-Identifier: Apache-2.0
# bash completion of dpctl; bash-completion loads it when it is needed.

_dpctl() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} i
    for ((i = 1; i < COMP_CWORD; i++)); do
        # Behind -- stands a command of its own.
        [[ ${COMP_WORDS[i]} != -- ]] || { mapfile -t COMPREPLY < <(compgen -c -f -- "$current"); return; }
    done
    case $previous in
    --daemon) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    -n | --ranks | --timeout) COMPREPLY=() ;;
    *)
        case ${COMP_WORDS[1]} in
        launch) [[ $COMP_CWORD == 1 ]] || { mapfile -t COMPREPLY < <(compgen -W "--ranks --timeout --verbose --daemon --help --" -- "$current"); return; } ;;&
        *) mapfile -t COMPREPLY < <(compgen -W "launch --help --version" -- "$current") ;;
        esac
        ;;
    esac
}
complete -F _dpctl dpctl
