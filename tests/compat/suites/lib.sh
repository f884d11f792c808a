# What the suites share; sourced. A suite is called as
#   BROKER=HOST:PORT NAME.sh DIR [NAMES]
# DIR takes its logs. NAMES is a file with the tests to run, one a line; all without it.
# It prints one line for each test: "pass NAME", "fail NAME" or "skip NAME".
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${LACUNA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lacuna}
broker=${BROKER:?the HOST:PORT of a broker}
dir=$(mkdir -p "${1:?a folder for logs}" && cd "$1" && pwd)
names=${2:-}
[ -z "$names" ] || names=$(cd "$(dirname "$names")" && pwd)/$(basename "$names")

# listed NAME: is it to be run?
listed() { [ -z "$names" ] || grep -qxF -- "$1" "$names"; }

# listed_tests: the names as a pattern for Go's -test.run, "" for all.
listed_tests() {
  [ -n "$names" ] || return 0
  grep -v '^#' "$names" | sort -u | paste -sd '|' | sed 's/^/^(/; s/$/)$/'
}

# go_results: turns the output of `go test -v` of top-level tests into results.
go_results() {
  sed -n 's/^--- PASS: \([^ ]*\).*/pass \1/p; s/^--- FAIL: \([^ ]*\).*/fail \1/p; s/^--- SKIP: \([^ ]*\).*/skip \1/p' "$1"
}
