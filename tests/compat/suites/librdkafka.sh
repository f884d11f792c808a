#!/usr/bin/env bash
# librdkafka's own tests. Its source comes inside the npm package of Confluent's client
# for JavaScript; building it takes two minutes, once.
. "$(dirname "$0")/lib.sh"

version=1.10.1
source=$cache/suites/librdkafka-$version
tests=$source/tests
if [ ! -f "$source/.done" ]; then
  rm -rf "$source"
  mkdir -p "$source"
  (cd "$cache/suites" && npm pack --silent "@confluentinc/kafka-javascript@$version" > /dev/null)
  tar xzf "$cache/suites/confluentinc-kafka-javascript-$version.tgz" -C "$source" --strip-components 3 package/deps/librdkafka
  (cd "$source" && ./configure --disable-syslog && make -j2 libs && cd tests && make -j2 build) > "$dir/build.log" 2>&1
  touch "$source/.done"
fi
printf '%s\n' "metadata.broker.list=$broker" test.topic.random=true test.timeout.multiplier=4 > "$dir/test.conf"

# Two tests create their topics with Kafka's own tool.
mkdir -p "$dir/kafka/bin"
cat > "$dir/kafka/bin/kafka-topics.sh" <<S
#!/bin/sh
exec "$here/../../../bench/peers/kafka/kafka.sh" run "$cache/kafka" org.apache.kafka.tools.TopicCommand "\$@"
S
chmod +x "$dir/kafka/bin/kafka-topics.sh"

# What librdkafka's tests need that a single broker without authentication has.
all="0001 0002 0003 0005 0007 0008 0011 0012 0013 0014 0015 0016 0017 0018 0019 0020 0021 0022 0026 0029 0030 0031
0033 0034 0035 0036 0039 0040 0041 0042 0044 0045 0048 0050 0051 0052 0053 0054 0055 0056 0057 0059 0060 0061 0063
0064 0065 0067 0069 0070 0073 0077 0083 0084 0085 0086 0089 0090 0091 0093 0099 0102 0103 0110 0112 0113 0114 0118
0122 0123 0125 0127 0129 0130 0132 0137 0140"

one() {
  cd "$tests"
  if TESTS=$1 TEST_KAFKA_VERSION=4.4.0 BROKERS=$broker KAFKA_PATH=$dir/kafka RDKAFKA_TEST_CONF=$dir/test.conf LD_LIBRARY_PATH=../src:../src-cpp \
    timeout 300 ./test-runner -p1 -L -K -E -Q > "$dir/$1.log" 2>&1 < /dev/null; then
    echo "pass $1"
  else
    echo "fail $1"
  fi
}
export -f one
export tests broker dir
for t in $all; do ! listed "$t" || echo "$t"; done | xargs -P 3 -I {} bash -c 'one {}'
