#!/usr/bin/env bash
# sarama's functional tests, which cut connections in the middle of requests. They expect
# five brokers behind toxiproxy: here five proxies lead to the one broker, which has to
# advertise 127.0.0.1:29091, and the topics have one replica.
. "$(dirname "$0")/lib.sh"

version=v1.61.1
source=$cache/suites/sarama-$version
mkdir -p "$cache/suites"
(cd "$here" && go build -o "$cache/suites/toxiproxy" github.com/Shopify/toxiproxy/v2/cmd/server)
if [ ! -x "$source/sarama.test" ]; then
  rm -rf "$source"
  cp -r "$(cd "$here" && go list -m -f '{{.Dir}}' github.com/IBM/sarama@$version)" "$source"
  chmod -R u+w "$source"
  sed -i 's/ReplicationFactor: 3,/ReplicationFactor: 1,/' "$source/functional_test.go"
  (cd "$source" && go test -c -tags functional -o sarama.test .)
fi
cat > "$dir/proxies.json" <<P
[$(for i in 1 2 3 4 5; do
  printf '%s{"name":"kafka%d","listen":"127.0.0.1:2909%d","upstream":"%s","enabled":true}' "$([ $i = 1 ] || echo ,)" $i $i "$broker"
done)]
P
"$cache/suites/toxiproxy" -host 127.0.0.1 -port 8474 -config "$dir/proxies.json" > "$dir/toxiproxy.log" 2>&1 &
proxy=$!
trap 'kill $proxy; wait $proxy 2> /dev/null || true' EXIT
for _ in $(seq 100); do
  (exec 3<> /dev/tcp/127.0.0.1/29095) 2> /dev/null && break
  sleep 0.1
done

tests=$(listed_tests)
skipped='TestFuncTxnProduceWithBrokerFailure|TestFuncAdminAlterPartitionReassignments|TestFuncAdminListConsumerGroupOffsets'
skipped+='|TestFuncIdempotentBufferedSequence|TestFuncAdminDescribeLogDirs|TestFuncClientMetadata' # of several brokers
cd "$source"
TOXIPROXY_ADDR=http://127.0.0.1:8474 KAFKA_VERSION=4.3.1 ./sarama.test -test.v -test.timeout 590s \
  -test.run "${tests:-^(TestFunc|TestConsumer(HighWater|PartialBatch|GroupDeadlock)|TestVersionMatrix|TestInterceptors|TestAsyncProducerRemoteBrokerClosed)}" \
  -test.skip "^($skipped)\$" > "$dir/sarama.log" 2>&1 || true
go_results "$dir/sarama.log"
