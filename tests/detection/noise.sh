#!/usr/bin/env bash
# What a host is busy with besides: compile jobs, a log that is written and synced, bursts. Until its input ends, or it
# is killed.
# usage: noise.sh FOLDER
set -u
cd "$1" || exit 1
end() {
    trap - TERM
    kill 0
}
trap end TERM
while kill -0 $$ 2>/dev/null; do
    for header in vector map string regex; do printf '#include <%s>\n' "$header"; done |
        g++ -x c++ -std=c++20 -fsyntax-only - 2>/dev/null || sleep 1
done &
while kill -0 $$ 2>/dev/null; do
    for line in {1..200}; do printf '%(%FT%T)T host service: line %d of what it has to say\n' -1 "$line"; done >>log
    sync -d log
    truncate -s 0 log
    sleep 0.05
done &
while kill -0 $$ 2>/dev/null; do
    for ((i = 0; i < 100000; ++i)); do :; done
    sleep 0.7
done &
read -r _
kill 0
