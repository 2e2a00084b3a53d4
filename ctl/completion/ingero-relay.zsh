#compdef ingero-relay
# Completion of ingero-relay(8) for zsh; installed as _ingero-relay where zsh looks for functions.
# tests/docs/completion_test.py compares it with --help.

_arguments \
    '--socket[where ingerod listens]:path:_files' \
    '--library[the libnvidia-ml.so.1 to load]:path:_files' \
    '--sysfs[where sysfs is]:directory:_files -/' \
    '--patience[how long a measurement may take]:time:' \
    '(- *)--help[print a summary of the options and exit]' \
    '(- *)--version[print the version and exit]'
