#!/usr/bin/env bash
# Installs the clients of the compatibility tests on a Debian machine: kcat, a virtual
# environment with confluent-kafka, Kafka's jars, and those of Kafka Streams' smoke test with
# what starts it. What is there already stays.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${LACUNA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lacuna}
mkdir -p "$cache"

# packages COMMAND=PACKAGE ...: Debian packages for the commands that are missing.
packages() {
  local missing=() pair
  for pair in "$@"; do
    command -v "${pair%%=*}" > /dev/null || missing+=("${pair#*=}")
  done
  [ ${#missing[@]} = 0 ] && return
  local root=()
  [ "$(id -u)" = 0 ] || root=(sudo)
  "${root[@]}" apt-get update -q
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
}

packages kcat=kcat java=openjdk-17-jdk-headless mvn=maven python3=python3

if ! "$cache/venv/bin/python" -c 'import confluent_kafka' 2> /dev/null; then
  python3 -m venv "$cache/venv" || { packages missing-venv=python3-venv && python3 -m venv "$cache/venv"; }
  "$cache/venv/bin/pip" install -q confluent-kafka==2.16.1
fi
"$here/../../bench/peers/kafka/kafka.sh" fetch "$cache/kafka"

streams=$cache/streams
if [ ! -f "$streams/.done" ]; then
  mvn -q -B -f "$here/java/pom.xml" dependency:copy-dependencies -DoutputDirectory="$streams/libs" -DincludeScope=runtime
  touch "$streams/.done"
fi
if [ ! "$streams/Smoke.class" -nt "$here/java/Smoke.java" ]; then
  javac -cp "$streams/libs/*" -d "$streams" "$here/java/Smoke.java"
fi
echo "the clients are in $cache"
