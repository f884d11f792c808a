#!/usr/bin/env bash
# kafka-python's own integration tests, from its source distribution. They expect broker
# id 0 and 4 partitions on auto-creation.
. "$(dirname "$0")/lib.sh"

version=3.0.12
source=$cache/suites/kafka_python-$version
if [ ! -f "$source/.done" ]; then
  mkdir -p "$cache/suites"
  "$cache/venv/bin/pip" download -q --no-deps --no-binary :all: -d "$cache/suites" "kafka-python==$version"
  tar xzf "$cache/suites/kafka_python-$version.tar.gz" -C "$cache/suites"
  "$cache/venv/bin/pip" install -q pytest pytest-mock pytest-timeout py lz4 python-snappy zstandard "$source"
  cp "$here/../python/service.py" "$source/test/service.py"
  touch "$source/test/__init__.py" "$source/.done"
fi
cd "$source"
tests=(test/integration --deselect test/integration/test_ssl_integration.py)
if [ -n "$names" ]; then
  mapfile -t tests < <(grep -v '^#' "$names" | sed 's#^#test/integration/#')
fi
KAFKA_URI=kafka://$broker KAFKA_ROOT=$dir KAFKA_VERSION=4.3 "$cache/venv/bin/pytest" "${tests[@]}" -v --timeout 60 \
  -p no:cacheprovider > "$dir/kafka-python.log" 2>&1 || true
sed -nE 's#^test/integration/(.*) PASSED.*#pass \1#p; s#^test/integration/(.*) (FAILED|ERROR).*#fail \1#p; s#^test/integration/(.*) SKIPPED.*#skip \1#p' "$dir/kafka-python.log"
