# Completion of ingero-relay(8) for bash; installed as share/bash-completion/completions/ingero-relay.
# tests/docs/completion_test.py compares it with --help.

_ingero-relay() {
    local IFS=$' \t\n'
    local options='--socket --library --sysfs --patience --help --version'
    # "--option=value" comes as three words.
    local cur=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]}
    if [[ $cur == '=' ]]; then
        cur=''
    elif [[ $option == '=' ]]; then
        option=${COMP_WORDS[COMP_CWORD - 2]}
    fi

    local words=''
    case $option in
        --sysfs)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -d -- "$cur")
            return
            ;;
        --socket | --library)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        --patience) ;;
        *) [[ $cur == -* ]] && words=$options ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

complete -F _ingero-relay ingero-relay
