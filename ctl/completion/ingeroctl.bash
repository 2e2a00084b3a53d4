# Completion of ingeroctl(1) for bash; installed as share/bash-completion/completions/ingeroctl.
# tests/docs/completion_test.py compares it with --help.

# __ingeroctl_pids PROGRAM [SOCKET]: of the traced processes that the caller may see; nothing where there is no daemon.
__ingeroctl_pids() {
    local arguments=()
    [[ -n ${2-} ]] && arguments=(--socket "$2")
    command timeout 1 "$1" "${arguments[@]}" --json processes 2>/dev/null </dev/null |
        command grep -oE '"pid":[0-9]+' | command cut -d : -f 2
}

_ingeroctl() {
    local IFS=$' \t\n'
    local commands='status processes probes stats stacks explain requests query check trace monitor annotate reload import export merge db record'
    local window='--since --from --to --pid --node'
    local requests='--request --slower-than --top'
    local -A options=(
        [global]='--socket --db --json --no-color --help --version'
        [processes]='--node'
        [stats]="$window --by --limit"
        [stacks]="$window --op --by --off-cpu --folded --limit"
        [explain]="$window --fail-on --by-request --by-step $requests"
        [requests]="$window $requests"
        [query]="$window --limit --csv --explain --schema --by-request $requests"
        [check]='--probe --local'
        [trace]='--pid --op --min-duration --errors --in-flight --count --duration'
        [monitor]='--count'
        [annotate]='--kind --id --label --pid --spans --lines'
        [import]='--output --node -o'
        [merge]='--output --node -o'
        [export]="$window --format --output -o"
        [db]='--output -o'
        [record]='--pid --unit --duration --since --output -o'
    )
    local with_value=' --kind --id --label --spans --lines --socket --db --output -o --format --node --since --from --to --pid --op --by --limit --fail-on --count --min-duration --duration --unit --request --slower-than --top '

    # What the word to be completed is the value of, and which command and socket stand before it. "--option=value"
    # comes as three words.
    local cur=${COMP_WORDS[COMP_CWORD]} option='' command='' socket='' word i
    for ((i = 1; i <= COMP_CWORD; ++i)); do
        word=${COMP_WORDS[i]}
        if [[ -n $option && $word == '=' && $i -lt $COMP_CWORD ]]; then
            continue
        elif [[ $i -eq $COMP_CWORD ]]; then
            [[ -n $option && $word == '=' ]] && cur=''
        elif [[ -n $option ]]; then
            [[ $option == --socket ]] && socket=$word
            option=''
        elif [[ $with_value == *" $word "* ]]; then
            option=$word
        elif [[ -z $command && " $commands " == *" $word "* ]]; then
            command=$word
        fi
    done

    local words=''
    case $option in
        --socket | --db | --spans | --lines | --output | -o)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        --pid) words=$(__ingeroctl_pids "$1" "$socket") ;;
        --kind) words='request step phase label' ;;
        --since) words='90s 5m 2h 1d' ;;
        --min-duration) words='50us 1ms 10ms 1s' ;;
        --slower-than) words='500ms 1s 2s 5s' ;;
        --duration) words='10s 1m 5m' ;;
        --by) words='op process kernel' ;;
        --format) words='perfetto chrome csv jsonl folded' ;;
        --fail-on) words='low medium high' ;;
        --*) ;;
        *)
            if [[ $cur == -* ]]; then
                words="${options[global]} ${options[${command:-global}]-}"
            elif [[ -z $command ]]; then
                words=$commands
            fi
            ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

complete -F _ingeroctl ingeroctl
