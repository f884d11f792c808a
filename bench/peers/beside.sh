#!/usr/bin/env bash
# W1, W2 and W7 on Lacuna beside Apache Kafka 4.4 and kfake, taking turns in one run; the medians
# and their ratios last. usage: beside.sh OUT
# DATA (./data) is for the servers' files, PAIRS (5) how often each has its turn, KHOME ($DATA/kafka) Kafka's home.
set -euo pipefail
cd "$(dirname "$0")"
OUT=$(realpath -m "${1:?usage: beside.sh OUT}")
export DATA=${DATA:-$PWD/data}
KHOME=${KHOME:-$DATA/kafka} PAIRS=${PAIRS:-5} KPORT=${KPORT:-39192} N=${N:-2000000}
mkdir -p "$DATA"
. ./quiet.sh
. ./servers.sh
go build -o bin/ ./...
make -s -C ../.. build && cp ../../bin/lacuna bin/lacuna

declare -A ADDR PID
lacuna() { # name port fsync
  rm -rf "$DATA/$1"
  bin/lacuna serve --listen "127.0.0.1:$2" --data-dir "$DATA/$1" --fsync="$3" > "$DATA/$1.log" 2>&1 < /dev/null &
  PID[$1]=$! ADDR[$1]=127.0.0.1:$2
  wait_port "$2"
}
stop() {
  local p
  for p in "${PID[@]}"; do kill "$p" 2> /dev/null || true; done
  kafka/kafka.sh stop $KPORT "$KHOME" wipe > /dev/null 2>&1 || true
}
trap stop EXIT

lacuna lacuna 19192 off
lacuna lacuna-fsync 19292 on
kafka/kafka.sh start $KPORT "$KHOME" > /dev/null
ADDR[kafka]=127.0.0.1:$KPORT PID[kafka]=$(cat "$KHOME/run-$KPORT/pid")
rm -rf "$DATA/kfake"
ADDR[kfake]=127.0.0.1:9392 PID[kfake]=$(start_kfake "$DATA/kfake")

k() { # peer command args...
  local peer=$1 cmd=$2
  shift 2
  timeout 120 bin/kload "$cmd" -b "${ADDR[$peer]}" -pid "${PID[$peer]}" -label "$peer" "$@"
}
k kafka topic -t warm
k kafka produce -t warm -n 400000 -batch 16384 -q > /dev/null
k kafka consume -t warm -n 400000 > /dev/null

for pair in $(seq "$PAIRS"); do
  for peer in lacuna kafka lacuna-fsync kfake; do
    quiet 10 || true
    k $peer topic -t "a$pair" -parts 1
    k $peer produce -t "a$pair" -n "$N" -batch 16384 -warm 100000 -secs 30 -out "$OUT" > /dev/null
    [ $peer = lacuna-fsync ] || k $peer consume -t "a$pair" -n "$N" -secs 30 -out "$OUT" > /dev/null
    case $peer in
      lacuna) k $peer filter -t "a$pair" -out "$OUT" > /dev/null ;;
      kafka | kfake) k $peer consume -t "a$pair" -n "$N" -keymod 16 -secs 30 -out "$OUT" > /dev/null ;;
    esac
    k $peer topic -t "a$pair" -rm
    [ $peer = lacuna-fsync ] && continue
    k $peer topic -t "b$pair" -parts 1
    k $peer produce -t "b$pair" -n 400000 -size 1024 -batch 16384 -warm 40000 -secs 30 -out "$OUT" > /dev/null
    k $peer topic -t "b$pair" -rm
  done
done
python3 beside.py "$OUT"
