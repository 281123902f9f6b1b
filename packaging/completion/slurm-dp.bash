# SPDX-License-Identifier: Apache-2.0
# bash completion of the --dp-* options of srun, sbatch and salloc. Sourced when a shell starts (from /etc/bash_completion.d), because
# the files that bash-completion loads at need are Slurm's own. Slurm's completion stays: it is asked first, and ours is added.
# Slurm's is one file for all its commands, so loading it for any of them would undo ours; hence _slurm_dp_load.

# Each option with the words that it knows; a unit test compares this with the table of options.
_slurm_dp_options='--dp-world=auto --dp-port=auto --dp-interface= --dp-store=hold,torch --dp-timeout= --dp-on-failure=abort,report,restart
    --dp-hang-timeout= --dp-slow= --dp-preflight=off,quick,full --dp-nccl-debug=off,on --dp-record=off --dp-record-interval= --dp-restarts= --dp-final-exit= --dp-grace= --dp-spares= --dp-min-nodes= --dp-tensor= --dp-pipeline= --dp-tiles=auto --dp-visible=node,own --dp-verbose --dp-dry-run'
declare -gA _slurm_dp_theirs=() _slurm_dp_tried=() # by command: Slurm's own function for it; whether that was looked for

_slurm_dp_names() {
    local option name
    for option in $_slurm_dp_options; do
        name=${option%%=*}
        [[ $option == *=* ]] && name+="="
        echo "$name"
    done
}

# $1: an option that takes a value → the words it knows.
_slurm_dp_values() {
    local option
    for option in $_slurm_dp_options; do
        [[ $option != "$1="* ]] || echo "${option#*=}" | tr , ' '
    done
}

# Puts ours before what Slurm's completion has registered for our three commands, and keeps what it said besides (-o nospace).
_slurm_dp_adopt() {
    local command spec theirs
    for command in srun sbatch salloc; do
        spec=$(complete -p "$command" 2>/dev/null) || spec="complete $command"
        theirs=
        [[ $spec =~ \ -F\ ([^ ]+)\  ]] && theirs=${BASH_REMATCH[1]}
        [[ $theirs == _slurm_dp ]] && continue
        _slurm_dp_theirs[$command]=$theirs
        if [[ $theirs ]]; then spec=${spec/ -F $theirs / -F _slurm_dp }; else spec="complete -o default -F _slurm_dp $command"; fi
        eval "$spec"
    done
}

# Loads what bash-completion has for a command: its function has this name from 2.12 on, that one before.
_slurm_dp_load_theirs() {
    if declare -F _comp_load >/dev/null; then
        _comp_load "$1"
    elif declare -F __load_completion >/dev/null; then
        __load_completion "$1"
    fi
}

# For Slurm's other commands: at the first TAB gives way to Slurm's own completion, and bash tries again (124).
_slurm_dp_load() {
    complete -r "$1"
    _slurm_dp_load_theirs "$1"
    _slurm_dp_adopt
    return 124
}

_slurm_dp() {
    local line=${COMP_LINE:0:COMP_POINT} command=${1##*/} word option theirs
    word=${line##*[[:space:]]}
    if [[ $word == --dp-*=* ]]; then
        option=${word%%=*}
        mapfile -t COMPREPLY < <(compgen -W "$(_slurm_dp_values "$option")" -- "${word#*=}")
        # Where = does not part words, the answer stands for the whole word.
        [[ $COMP_WORDBREAKS == *=* ]] || COMPREPLY=("${COMPREPLY[@]/#/$option=}")
        compopt +o filenames +o nospace
        return
    fi
    if [[ ! ${_slurm_dp_theirs[$command]} && ! ${_slurm_dp_tried[$command]} ]]; then
        _slurm_dp_tried[$command]=yes
        complete -r "$command"
        _slurm_dp_load_theirs "$command"
        _slurm_dp_adopt
    fi
    COMPREPLY=()
    theirs=${_slurm_dp_theirs[$command]}
    # Slurm has no option that begins so; asking would only set how its own answers are to be quoted.
    [[ ! $theirs || $word == --dp* ]] || "$theirs" "$@"
    if [[ $word == -* ]]; then
        mapfile -O "${#COMPREPLY[@]}" -t COMPREPLY < <(compgen -W "$(_slurm_dp_names)" -- "$word")
        # An only answer of ours is no file's name (sbatch's are), and a blank follows but where it wants a value.
        case ${#COMPREPLY[@]}${COMPREPLY[0]} in
        1--dp-*=) compopt +o filenames -o nospace ;;
        1--dp-*) compopt +o filenames +o nospace ;;
        esac
    fi
}

_slurm_dp_adopt
for _slurm_dp_command in sacct sacctmgr sattach sbcast scancel scontrol scrontab sdiag sinfo sprio squeue sreport sshare sstat strigger; do
    complete -p "$_slurm_dp_command" &>/dev/null || complete -F _slurm_dp_load "$_slurm_dp_command"
done
unset _slurm_dp_command
