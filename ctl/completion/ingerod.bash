# Completion of ingerod(8) for bash; installed as share/bash-completion/completions/ingerod.
# tests/docs/completion_test.py compares it with --help.

_ingerod() {
    local IFS=$' \t\n'
    local options='--directory --config --socket --worker --bus --log-level --check-config --print-config --check --probe --json --help --version'
    # "--option=value" comes as three words.
    local cur=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]}
    if [[ $cur == '=' ]]; then
        cur=''
    elif [[ $option == '=' ]]; then
        option=${COMP_WORDS[COMP_CWORD - 2]}
    fi

    local words=''
    case $option in
        --directory)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -d -- "$cur")
            return
            ;;
        --config | --socket | --worker)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        --bus) words='system none' ;;
        --log-level) words='debug info warn error' ;;
        *) [[ $cur == -* ]] && words=$options ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

complete -F _ingerod ingerod
