#!/usr/bin/env bash
# Runs each fuzz target of the module for a while: fuzz.sh [TIME=10s]
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
status=0
while read -r dir; do
  for target in $(go test -list '^Fuzz' "./$dir" | grep '^Fuzz'); do
    echo "--- $dir $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./$dir" || status=1
  done
done < <(git grep --untracked -l '^func Fuzz' -- '*_test.go' | xargs -r -n 1 dirname | sort -u)
exit $status
