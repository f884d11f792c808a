#!/usr/bin/env bash
# Lacuna's processors beside Kafka Streams: words are counted in a store. Each run has a fresh Lacuna as its broker.
# usage: wordcount.sh OUT [JOBS [flags of wordcount run]]
#   JOBS (all of them) take turns; the medians come last. Only those of Kafka Streams need Java. LACUNA_CACHE has
#   Kafka's jars, DATA (./data) is for the files of all.
set -euo pipefail
cd "$(dirname "$0")"
OUT=$(realpath -m "${1:?usage: wordcount.sh OUT [JOBS [flags]]}")
JOBS=${2:-lacuna,lacuna-log,streams-100ms,lacuna-eo,lacuna-log-eo,streams-eo,streams,streams-cache}
shift $(($# < 2 ? $# : 2))
KHOME=${LACUNA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lacuna}/kafka
DATA=${DATA:-$PWD/data}
go build -o bin/ ./wordcount
make -s -C ../.. build
if [[ $JOBS == *streams* ]]; then
  kafka/kafka.sh fetch "$KHOME"
  [ bin/WordCount.class -nt wordcount/WordCount.java ] || javac -cp "$KHOME/libs/*" -d bin wordcount/WordCount.java
fi
exec bin/wordcount run -jobs "$JOBS" -lacuna ../../bin/lacuna -data "$DATA/wordcount" -cp "bin:$KHOME/libs/*" -out "$OUT" "$@"
