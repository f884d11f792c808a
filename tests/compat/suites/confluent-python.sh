#!/usr/bin/env bash
# librdkafka's transactional API through confluent-kafka for Python: the scenarios of
# python/transactions.py.
. "$(dirname "$0")/lib.sh"

scenarios=()
[ -z "$names" ] || mapfile -t scenarios < <(grep -v '^#' "$names")
"$cache/venv/bin/python" "$here/../python/transactions.py" run "$broker" "${scenarios[@]}" 2> "$dir/transactions.log"
