#!/usr/bin/env bash
# Queues, W3 to W6, and transactions on Lacuna beside Apache Kafka 4.4, taking turns in one run; the medians and their ratios last.
# usage: share.sh OUT [w3 latency late stuck gaps w5 w6 txn ...]   all of them by default
# PEERS ("lacuna kafka lacuna-fsync"): lacuna waits for no disk, as Kafka does not; lacuna-fsync does. PAIRS (5) is
# how often each has its turn, DATA (./data) for the files of servers, KHOME (the cache of tests/compat) for Kafka's jars.
set -euo pipefail
cd "$(dirname "$0")"
OUT=$(realpath -m "${1:?usage: share.sh OUT [workloads]}")
shift
WORKLOADS=${*:-w3 latency late stuck gaps w5 w6 txn}
export DATA=${DATA:-$PWD/data}
PEERS=${PEERS:-lacuna kafka lacuna-fsync} PAIRS=${PAIRS:-5} KPORT=${KPORT:-39192}
KHOME=${KHOME:-${LACUNA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lacuna}/kafka}
mkdir -p "$DATA"
. ./quiet.sh
. ./servers.sh
go build -o bin/ ./...
make -s -C ../.. build && cp ../../bin/lacuna bin/lacuna

declare -A PID PORT=([lacuna]=19192 [lacuna-fsync]=19292 [kafka]=$KPORT)
# The most Kafka can be set to, for the runs that raise the limit of acquired records; others leave its default.
KAFKA_SET=(group.share.max.partition.max.record.locks=10000 group.share.min.record.lock.duration.ms=1000)
start() { # peer: starts it on what it has stored
  local fsync=off
  case $1 in
    kafka)
      kafka/kafka.sh start "$KPORT" "$KHOME" "${KAFKA_SET[@]}" > /dev/null
      PID[kafka]=$(cat "$KHOME/run-$KPORT/pid")
      ;;
    *)
      [ "$1" = lacuna ] || fsync=on
      bin/lacuna serve --listen "127.0.0.1:${PORT[$1]}" --data-dir "$DATA/$1" --fsync=$fsync >> "$DATA/$1.log" 2>&1 < /dev/null &
      PID[$1]=$!
      wait_port "${PORT[$1]}"
      ;;
  esac
}
stop() {
  local peer
  for peer in "${!PID[@]}"; do
    case $peer in
      kafka) kafka/kafka.sh stop "$KPORT" "$KHOME" wipe ;;
      *) kill "${PID[$peer]}" && wait "${PID[$peer]}" ;;
    esac > /dev/null 2>&1 || true
  done
}
trap stop EXIT
for peer in $PEERS; do
  [ "$peer" = kafka ] || rm -rf "${DATA:?}/$peer" "$DATA/$peer.log"
  start "$peer"
done

k() { # peer command args...
  local peer=$1 cmd=$2
  shift 2
  timeout 120 bin/kload "$cmd" -b "127.0.0.1:${PORT[$peer]}" -pid "${PID[$peer]}" "$@"
}
fill() { # topic records args...: the same topic on each peer
  local peer topic=$1 n=$2
  shift 2
  for peer in $PEERS; do
    k "$peer" topic -t "$topic" -parts 1
    k "$peer" produce -t "$topic" -n "$n" -batch 16384 -q -secs 110 "$@" > /dev/null
  done
}
drop() { # topic
  local peer
  for peer in $PEERS; do k "$peer" topic -t "$1" -rm; done
}
queue() { # peer name args...: one JSON line, labelled PEER/NAME
  local peer=$1 name=$2
  shift 2
  quiet 3 || true
  k "$peer" queue -label "$peer/$name" -ack share-raw -secs 30 -out "$OUT" "$@" > /dev/null
}
locks() { # peer: LOCKS are options that let as many records be acquired at once as the peer can
  LOCKS=(-gc share.partition.max.record.locks=1000000)
  [ "$1" != kafka ] || LOCKS=(-gc share.partition.max.record.locks=10000)
}
turns() { # function: each peer in turn, PAIRS times
  local turn peer
  for turn in $(seq "$PAIRS"); do
    for peer in $PEERS; do "$1" "$peer" "$turn"; done
  done
}

# A turn of W3 is to take a second of the server's CPU at least, so Kafka, which takes more of it, has fewer records.
w3() {
  fill q3 5000000
  turns turn_w3
  drop q3
}
turn_w3() {
  local c n=5000000
  [ "$1" != kafka ] || n=1000000
  for c in 4 16 64; do queue "$1" "W3, $c workers" -t q3 -n $n -c "$c"; done
}

latency() { turns turn_latency; }
turn_latency() {
  k "$1" topic -t "live$2" -parts 1
  queue "$1" "W3 latency, 20,000/s, 16 workers" -t "live$2" -n 160000 -rate 20000 -c 16 -stall 9 -warm 2s
  k "$1" topic -t "live$2" -rm
}

# A Kafka that reached its limit gets no further, so 13 seconds are enough to see its rate.
late() {
  fill q4 6000000
  turns turn_late
  drop q4
}
turn_late() {
  locks "$1"
  queue "$1" "W4, one in ten 5 s late" "${LOCKS[@]}" -t q4 -n 6000000 -c 4 -late 10 -secs 13 -stall 8
  [ "$1" != kafka ] || queue kafka "W4, one in ten 5 s late, default limit" -t q4 -n 6000000 -c 4 -late 10 -secs 13 -stall 8
}

# What counts is how far it gets, which is the same each time; Kafka stops long before the end of a short topic.
stuck() {
  local peer n
  for peer in $PEERS; do
    n=10000000
    [ "$peer" != kafka ] || n=200000
    PEERS=$peer fill q4 $((n + 100000))
    locks "$peer"
    queue "$peer" "W4, one never acknowledged" "${LOCKS[@]}" -t q4 -n $n -c 4 -gaps 1 -secs 60 -stall 3 -abandon
    queue "$peer" "W4, one never acknowledged, default limit" -t q4 -n $n -c 4 -gaps 1 -secs 60 -stall 3 -abandon
  done
  drop q4
}

# Not on Kafka, which gets no further than its limit behind the oldest gap (stuck).
gaps() {
  local PEERS=${PEERS/kafka/}
  fill q4 6200000
  turns turn_gaps
  drop q4
}
turn_gaps() {
  local g
  locks "$1"
  for g in 1000 100000; do
    queue "$1" "W4, $g gaps open" "${LOCKS[@]}" -t q4 -n $((2 * g + 6000000)) -c 4 -gaps "$g" -stall 4 -abandon
  done
}

w5() {
  fill q5 20000 -hot hot-key1 -hotevery 100
  turns turn_w5
  drop q5
}
turn_w5() {
  local hot=(-t q5 -n 20000 -c 16 -hot hot-key1)
  queue "$1" "W5, 20 a fetch" "${hot[@]}" -strict -max 20 -stall 8
  queue "$1" "W5, 500 a fetch" "${hot[@]}" -stall 8
  [ "$1" = kafka ] || queue "$1" "W5 in key order, 20 a fetch" -gc share.delivery.mode=key-ordered "${hot[@]}" -strict -max 20 -stall 12
}

# kill -9 with gaps open, all acknowledgements confirmed; then the group reads on to the end of the topic. Its members
# wait for the server before that is started, so that the clock runs from the start to the first record.
w6() { turns turn_w6; }
turn_w6() {
  local peer=$1 topic=w6-$2 total=1100000 open=(-n 1000000 -c 4 -gaps 100000) reader at
  # Kafka takes no more than 10,000 offsets between the first open record and the last.
  [ "$peer" != kafka ] || total=300000 open=(-n 9000 -c 1 -strict -gaps 4000 -stall 4)
  k "$peer" topic -t "$topic" -parts 1
  k "$peer" produce -t "$topic" -n "$total" -batch 16384 -q > /dev/null
  quiet 5 || true
  locks "$peer"
  k "$peer" queue -t "$topic" -g "$topic" "${LOCKS[@]}" -ack share-raw -secs 30 -kill "${open[@]}" > "$DATA/before.json"
  wait "${PID[$peer]}" 2> /dev/null || true
  k "$peer" queue -t "$topic" -g "$topic" -ack share-raw -n "$total" -c 4 -retry 60s -secs 60 -stall 3 > "$DATA/after.json" &
  reader=$!
  sleep 1
  at=$(now_ms)
  start "$peer"
  wait "$reader"
  python3 restart.py "$peer/W6, kill -9" "$total" "$at" "$DATA/before.json" "$DATA/after.json" >> "$OUT"
  k "$peer" topic -t "$topic" -rm
}

# Transactions of kgo's own producer, of one record each.
txn() { turns turn_txn; }
turn_txn() {
  local c n=2000
  [ "$1" != kafka ] || n=500
  k "$1" topic -t "txn$2" -parts 1
  for c in 1 16; do
    quiet 3 || true
    k "$1" txn -label "$1/transactions, $c producers" -t "txn$2" -n $((n * (c == 1 ? 1 : 4))) -warm $n -c "$c" -secs 60 -out "$OUT" > /dev/null
  done
  k "$1" topic -t "txn$2" -rm
}

# A JVM is not warm after one pass: its CPU a record halves over the first two million.
fill warm 600000
for peer in $PEERS; do
  for _ in 1 2 3; do k "$peer" queue -label warm -ack share-raw -t warm -n 600000 -c 4 -secs 30 > /dev/null; done
done
drop warm
for workload in $WORKLOADS; do "$workload"; done
python3 share.py "$OUT"
