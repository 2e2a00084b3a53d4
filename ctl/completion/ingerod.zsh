#compdef ingerod
# Completion of ingerod(8) for zsh; installed as _ingerod where zsh looks for functions.
# tests/docs/completion_test.py compares it with --help.

_arguments \
    '--directory[keep store and sockets below this directory]:directory:_files -/' \
    '--config[configuration file]:file:_files' \
    '--socket[control socket]:path:_files' \
    '--worker[the ingero-worker program]:path:_files' \
    '--bus[the D-Bus to serve]:bus:(system none)' \
    '--log-level[the least that is logged]:level:(debug info warn error)' \
    '--check-config[check the configuration and exit]' \
    '--print-config[print all of the configuration, defaults included, and exit]' \
    '--check[say what this host offers for tracing and exit]' \
    '--probe[with --check\: trace a program of the package for a moment]' \
    '--json[with --check\: print one line of JSON]' \
    '(- *)--help[print a summary of the options and exit]' \
    '(- *)--version[print the version and exit]'
