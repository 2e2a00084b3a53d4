# Completion of ingeroctl(1) for fish; installed as share/fish/vendor_completions.d/ingeroctl.fish.
# ingeroctl itself says what may stand there: see ctl/complete.h of the sources.

function __ingeroctl_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    # Nothing of what was typed is run or expanded, and fish quotes what it inserts.
    set -l lines (command $words[1] complete -- $words[2..-1] "$current" 2>/dev/null </dev/null)
    set -l value (string replace -r '^--[^=]*=' '' -- "$current")
    set -l before (string match -r '^--[^=]*=' -- "$current")
    for line in $lines[2..-1]
        echo -- $line
    end
    switch "$lines[1]"
        case files
            for file in (__fish_complete_path "$value")
                echo -- "$before$file"
            end
        case directories
            for file in (__fish_complete_directories "$value" '')
                echo -- "$before$file"
            end
        case commands
            __fish_complete_command
    end
end

complete -c ingeroctl -f -a '(__ingeroctl_complete)'
