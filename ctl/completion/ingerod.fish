# Completion of ingerod(8) for fish; installed as share/fish/vendor_completions.d/ingerod.fish.
# tests/docs/completion_test.py compares it with --help.

complete -c ingerod -f
complete -c ingerod -l directory -x -a '(__fish_complete_directories)' -d 'Keep store and sockets below this directory'
complete -c ingerod -l config -r -F -d 'Configuration file'
complete -c ingerod -l socket -r -F -d 'Control socket'
complete -c ingerod -l worker -r -F -d 'The ingero-worker program'
complete -c ingerod -l bus -x -a 'system none' -d 'The D-Bus to serve'
complete -c ingerod -l log-level -x -a 'debug info warn error' -d 'The least that is logged'
complete -c ingerod -l check-config -d 'Check the configuration and exit'
complete -c ingerod -l print-config -d 'Print all of the configuration, defaults included, and exit'
complete -c ingerod -l check -d 'Say what this host offers for tracing and exit'
complete -c ingerod -l probe -d 'With --check: trace a program of the package for a moment'
complete -c ingerod -l json -d 'With --check: print one line of JSON'
complete -c ingerod -l help -d 'Print a summary of the options and exit'
complete -c ingerod -l version -d 'Print the version and exit'
