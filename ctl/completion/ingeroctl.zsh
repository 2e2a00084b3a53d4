#compdef ingeroctl
# Completion of ingeroctl(1) for zsh; installed as _ingeroctl where zsh looks for functions.
# ingeroctl itself says what may stand there: see ctl/complete.h of the sources.

_ingeroctl() {
    local -a lines values shown
    local line kind value result=1
    # As it was typed, without the quotes; nothing of it is run or expanded.
    lines=("${(@f)$(command $words[1] complete -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null </dev/null)}")
    kind=$lines[1]
    for line in "${(@)lines[2,-1]}"; do
        value=${line%%$'\t'*}
        values+=("$value")
        shown+=("$value${${line#*$'\t'}:+  -- ${line#*$'\t'}}")
    done
    # compadd quotes what it inserts.
    (( $#values )) && compadd -l -d shown -a values && result=0
    [[ $PREFIX == --*=* ]] && compset -P '*='
    case $kind in
        files) _files && result=0 ;;
        directories) _files -/ && result=0 ;;
        commands) _command_names -e && result=0 ;;
    esac
    return result
}

_ingeroctl "$@"
