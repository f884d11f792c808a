#!/usr/bin/env bash
# Runs each fuzz target of the module for a while: fuzz.sh [TIME=10s]
# TIME may be a number of inputs, such as 10000x. CI uses that: when a time is over, go test now and then
# takes an input that is under way for a failure ("context deadline exceeded").
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
status=0
while read -r dir; do
  for target in $(go test -list '^Fuzz' "./$dir" | grep '^Fuzz'); do
    echo "--- $dir $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 200x "./$dir" || status=1
  done
done < <(git grep --untracked -l '^func Fuzz' -- '*_test.go' | xargs -r -n 1 dirname | sort -u)
exit $status
