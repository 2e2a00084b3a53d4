# Completion of ingero-relay(8) for fish; installed as share/fish/vendor_completions.d/ingero-relay.fish.
# tests/docs/completion_test.py compares it with --help.

complete -c ingero-relay -f
complete -c ingero-relay -l socket -r -F -d 'Where ingerod listens'
complete -c ingero-relay -l library -r -F -d 'The libnvidia-ml.so.1 to load'
complete -c ingero-relay -l sysfs -x -a '(__fish_complete_directories)' -d 'Where sysfs is'
complete -c ingero-relay -l patience -x -d 'How long a measurement may take'
complete -c ingero-relay -l help -d 'Print a summary of the options and exit'
complete -c ingero-relay -l version -d 'Print the version and exit'
