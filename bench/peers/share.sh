#!/usr/bin/env bash
# W3, W4 and W5 on Lacuna (fsync on); the medians last. usage: share.sh OUT
# PEERS="lacuna kafka" has Apache Kafka 4.4 take turns with it. DATA (./data) is for the servers' files, PAIRS (3)
# how often each has its turn, KHOME ($DATA/kafka) Kafka's home.
set -euo pipefail
cd "$(dirname "$0")"
OUT=$(realpath -m "${1:?usage: share.sh OUT}")
export DATA=${DATA:-$PWD/data}
PEERS=${PEERS:-lacuna} KHOME=${KHOME:-$DATA/kafka} PAIRS=${PAIRS:-3} KPORT=${KPORT:-39192} N=${N:-600000}
mkdir -p "$DATA"
. ./quiet.sh
. ./servers.sh
go build -o bin/ ./...
make -s -C ../.. build && cp ../../bin/lacuna bin/lacuna

declare -A ADDR PID
rm -rf "$DATA/lacuna"
bin/lacuna serve --listen 127.0.0.1:19192 --data-dir "$DATA/lacuna" > "$DATA/lacuna.log" 2>&1 < /dev/null &
PID[lacuna]=$! ADDR[lacuna]=127.0.0.1:19192
wait_port 19192
stop() {
  kill "${PID[lacuna]}" 2> /dev/null || true
  [[ $PEERS != *kafka* ]] || kafka/kafka.sh stop "$KPORT" "$KHOME" wipe > /dev/null 2>&1 || true
}
trap stop EXIT
if [[ $PEERS = *kafka* ]]; then
  kafka/kafka.sh start "$KPORT" "$KHOME" > /dev/null
  ADDR[kafka]=127.0.0.1:$KPORT PID[kafka]=$(cat "$KHOME/run-$KPORT/pid")
fi

k() { # peer command args...
  local peer=$1 cmd=$2
  shift 2
  timeout 120 bin/kload "$cmd" -b "${ADDR[$peer]}" -pid "${PID[$peer]}" "$@"
}
queue() { # peer name args...: one JSON line, labelled PEER/NAME
  local peer=$1 name=$2
  shift 2
  quiet 10 || true
  k "$peer" queue -label "$peer/$name" -ack share-raw -secs 20 -out "$OUT" "$@" > /dev/null
}
for peer in $PEERS; do
  k $peer topic -t q100 -parts 1
  k $peer produce -t q100 -n "$N" -batch 16384 -q > /dev/null
  k $peer topic -t q5 -parts 1
  k $peer produce -t q5 -n 20000 -batch 16384 -hot hot-key1 -hotevery 100 -q > /dev/null
  for _ in 1 2 3; do # a fresh Kafka may take longer than a member waits to assign the first group
    k $peer queue -label warm -ack share-raw -t q100 -n "$N" -c 4 -secs 20 > /dev/null 2>&1 && break
  done
done
for _ in $(seq "$PAIRS"); do
  for peer in $PEERS; do
    for c in 1 4 16 64; do queue $peer "W3 $c workers" -t q100 -n "$N" -c $c; done
    queue $peer "W5 hot key, 500 a fetch" -t q5 -n 20000 -c 16 -hot hot-key1 -stall 8
    queue $peer "W5 hot key, 20 a fetch" -t q5 -n 20000 -c 16 -strict -max 20 -hot hot-key1 -stall 8
  done
  queue lacuna "W4 one in ten 5 s late" -gc share.partition.max.record.locks=1000000 -t q100 -n "$N" -c 4 -late 10 -stall 8
  queue lacuna "W4 1,000 gaps open" -gc share.partition.max.record.locks=1000000 -t q100 -n 302000 -c 4 -gaps 1000 -stall 4 -abandon
  queue lacuna "W4 100,000 gaps open" -gc share.partition.max.record.locks=1000000 -t q100 -n 500000 -c 4 -gaps 100000 -stall 4 -abandon
  queue lacuna "W5 hot key in order, 20 a fetch" -gc share.delivery.mode=key-ordered -t q5 -n 20000 -c 16 -strict -max 20 -hot hot-key1 -stall 12
done
python3 share.py "$OUT"
