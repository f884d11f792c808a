#!/usr/bin/env bash
# franz-go's own tests of kgo, at the version that go.mod pins.
. "$(dirname "$0")/lib.sh"

package=github.com/twmb/franz-go/pkg/kgo
binary=$cache/suites/kgo.test
mkdir -p "$cache/suites"
(cd "$here" && go test -c -o "$binary" $package)
cd "$(cd "$here" && go list -f '{{.Dir}}' $package)"
KGO_TEST_RF=1 KGO_SEEDS=$broker KGO_TEST_RECORDS=${RECORDS:-5000} \
  "$binary" -test.v -test.timeout 590s -test.run "$(listed_tests)" > "$dir/kgo.log" 2>&1 || true
go_results "$dir/kgo.log"
