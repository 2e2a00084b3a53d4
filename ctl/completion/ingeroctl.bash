# Completion of ingeroctl(1) for bash; installed as share/bash-completion/completions/ingeroctl.
# ingeroctl itself says what may stand there: see ctl/complete.h of the sources.

# COMP_WORDS put together again where bash has split them at "=" or ":", into the caller's array words.
__ingeroctl_words() {
    local rest=${COMP_LINE:0:COMP_POINT} i
    words=()
    for ((i = 1; i <= COMP_CWORD; ++i)); do
        rest=${rest#*"${COMP_WORDS[i - 1]}"}
        local word=${COMP_WORDS[i]}
        ((i == COMP_CWORD)) && word=${rest#"${rest%%[![:space:]]*}"}
        if [[ ${#words[@]} -gt 0 && $rest != [[:space:]]* ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
    done
}

_ingeroctl() {
    local IFS=$' \t\n' words lines line kind cur value fixed
    __ingeroctl_words
    # As it was typed, without the quotes; nothing of it is run or expanded.
    mapfile -t lines < <(command "$1" complete -- "${words[@]//[\"\'\\]/}" 2>/dev/null </dev/null)
    kind=${lines[0]-}
    # What readline leaves as it is: all up to the last "=" or ":" that it takes for the end of a word.
    cur=${words[-1]}
    fixed=''
    [[ $COMP_WORDBREAKS == *=* && $cur == *=* ]] && fixed=${cur%"${cur##*=}"}
    [[ $COMP_WORDBREAKS == *:* && $cur == *:* ]] && fixed=${cur%"${cur##*:}"}
    COMPREPLY=()
    for line in "${lines[@]:1}"; do
        value=${line%%$'\t'*}
        if [[ $cur == *[\"\']* ]]; then
            # Inside quotes only what no quote gives a meaning.
            [[ $value == *[!A-Za-z0-9_.:@%/=,+-]* ]] && continue
        else
            printf -v value %q "$value"
        fi
        COMPREPLY+=("${value#"$fixed"}")
    done
    [[ $cur == --*=* ]] && cur=${cur#*=}
    case $kind in
        files | directories | commands)
            local action=-f
            [[ $kind == directories ]] && action=-d
            [[ $kind == commands ]] && action=-c
            compopt -o filenames 2>/dev/null
            mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen "$action" -- "$cur")
            ;;
    esac
}

complete -F _ingeroctl ingeroctl
