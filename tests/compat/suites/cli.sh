#!/usr/bin/env bash
# Apache Kafka's own command-line tools, each used once as a person would.
#   ACLS=false    the broker has no authorizer
#   NODE_ID=1     the broker's id
. "$(dirname "$0")/lib.sh"

kafka=$here/../../../bench/peers/kafka/kafka.sh
tools=org.apache.kafka.tools
export KAFKA_TOOL_OPTS='-XX:TieredStopAtLevel=1 -XX:+UseSerialGC'
run=$(date +%s%N | tail -c 9)
topic=cli-$run
group=group-$run
server=(--bootstrap-server "$broker")

tool() { "$kafka" run "$cache/kafka" "$tools.$1" "${@:2}"; }

# check NAME PATTERN TOOL ARGS...: the tool's output has the pattern; or, for a pattern
# that begins with !, has it not and the tool exits with 0.
check() {
  local name=$1 pattern=$2 ok=1 status=0
  shift 2
  listed "$name" || return 0
  timeout "${LIMIT:-60}" "$kafka" run "$cache/kafka" "$tools.$1" "${@:2}" > "$dir/$name.log" 2>&1 < "${INPUT:-/dev/null}" || status=$?
  if [[ $pattern == !* ]]; then
    [ "$status" = 0 ] && ! grep -qE -- "${pattern#!}" "$dir/$name.log" || ok=0
  else
    grep -qE -- "$pattern" "$dir/$name.log" || ok=0
  fi
  if [ $ok = 1 ]; then
    echo "pass $name"
  else
    echo "fail $name status $status: $(grep -vE '^\s+at |^$' "$dir/$name.log" | tail -n 2 | tr '\n' ' ' | cut -c1-200)"
  fi
}

# earliest GROUP: lets a share group begin at the start of its topics.
earliest() {
  tool ConfigCommand "${server[@]}" --alter --entity-type groups --entity-name "$1" \
    --add-config share.auto.offset.reset=earliest > "$dir/earliest-$1.log" 2>&1 || true
}

topics() {
  check api-versions 'Produce\(0\)' BrokerApiVersionsCommand "${server[@]}"
  check topic-create 'Created topic' TopicCommand "${server[@]}" --create --topic "$topic" --partitions 3 --config retention.ms=86400000
  check topic-describe 'PartitionCount: *3.*retention.ms=86400000' TopicCommand "${server[@]}" --describe --topic "$topic"
  check topic-alter-partitions '!rror' TopicCommand "${server[@]}" --alter --topic "$topic" --partitions 4
  check topic-list "$topic" TopicCommand "${server[@]}" --list
}

produce_and_consume() {
  check producer-perf '20000 records sent' ProducerPerformance "${server[@]}" --topic "$topic" --num-records 20000 \
    --record-size 200 --throughput -1 --command-property acks=all compression.type=lz4
  check consumer-perf ', 20000,|, 200[0-9][0-9],' ConsumerPerformance "${server[@]}" --topic "$topic" \
    --num-records 20000 --group "perf-$run" --timeout 30000
  check consumer-perf-848 ', 20000,|, 200[0-9][0-9],' ConsumerPerformance "${server[@]}" --topic "$topic" \
    --num-records 20000 --group "perf848-$run" --timeout 30000 --command-property group.protocol=consumer
  check get-offsets "$topic:3:" GetOffsetShell "${server[@]}" --topic "$topic"
  seq 1 100 > "$dir/numbers.txt"
  INPUT=$dir/numbers.txt check console-producer '!ERROR' ConsoleProducer "${server[@]}" --topic "$topic-c" --command-property acks=all
  local console=(consumer.ConsoleConsumer "${server[@]}" --topic "$topic-c" --from-beginning --max-messages 100 --timeout-ms 20000)
  check console-consumer 'total of 100 messages' "${console[@]}" --group "$group"
  check console-consumer-848 'total of 100 messages' "${console[@]}" --group "$group-848" --command-property group.protocol=consumer
  check e2e-latency 'Avg latency' EndToEndLatency "${server[@]}" --topic "$topic-e2e" --num-records 200 --producer-acks all --record-size 100
  check verifiable-producer '"sent":500' VerifiableProducer "${server[@]}" --topic "$topic-v" --max-messages 500 --acks -1
  local verifiable=(VerifiableConsumer "${server[@]}" --topic "$topic-v" --max-messages 500 --reset-policy earliest)
  check verifiable-consumer 'records_consumed.*"count":[0-9]+' "${verifiable[@]}" --group-id "v-$run"
  check verifiable-consumer-848 'records_consumed.*"count":[0-9]+' "${verifiable[@]}" --group-id "v848-$run" --group-protocol consumer
  check client-compat '!(Exception|FAIL|mismatch)' ClientCompatibilityTest "${server[@]}" --topic "$topic-compat" \
    --offsets-for-times-supported true --cluster-id-supported true --expect-record-too-large-exception false \
    --num-cluster-nodes 1 --create-topics-supported true --describe-acls-supported "${ACLS:-true}" \
    --describe-configs-supported true --idempotent-producer-supported true
}

share_groups() {
  if listed share-consumer-perf || listed group-config; then earliest "share-$run"; fi
  check group-config 'share.auto.offset.reset=earliest' ConfigCommand "${server[@]}" --describe --entity-type groups --entity-name "share-$run"
  check share-consumer-perf ', 20000,|, 20[0-9]{3},' ShareConsumerPerformance "${server[@]}" --topic "$topic" \
    --num-records 20000 --group "share-$run" --timeout 30000
  if listed console-share-consumer; then earliest "$group-share"; fi
  check console-share-consumer 'total of 100 messages' consumer.ConsoleShareConsumer "${server[@]}" --topic "$topic-c" \
    --max-messages 100 --timeout-ms 20000 --group "$group-share"
  LIMIT=25 check verifiable-share-consumer 'records_consumed|offsets_acknowledged' VerifiableShareConsumer "${server[@]}" \
    --topic "$topic-v" --group-id "vs-$run" --max-messages 500 --offset-reset-strategy earliest --acknowledgement-mode sync
  check groups-all 'Share' GroupsCommand "${server[@]}" --list
  local shares=(consumer.group.ShareGroupCommand "${server[@]}")
  check share-group-list "$group-share" "${shares[@]}" --list
  check share-group-describe "$topic-c" "${shares[@]}" --describe --group "$group-share"
  check share-group-reset "$topic-c +[0-9]+ +0" "${shares[@]}" --group "$group-share" --topic "$topic-c" --reset-offsets --to-earliest --execute
  check share-group-delete-offsets "$topic-c" "${shares[@]}" --delete-offsets --group "$group-share" --topic "$topic-c"
  check share-group-delete 'Deletion of requested|successful' "${shares[@]}" --delete --group "$group-share"
}

groups() {
  local groups=(consumer.group.ConsumerGroupCommand "${server[@]}")
  check group-list "$group" "${groups[@]}" --list
  check group-describe "$topic-c" "${groups[@]}" --describe --group "$group"
  check group-describe-848 "$topic-c" "${groups[@]}" --describe --group "$group-848"
  check group-state "Empty" "${groups[@]}" --describe --group "$group" --state
  check group-reset-offsets "$topic-c +[0-9]+ +0" "${groups[@]}" --group "$group" --topic "$topic-c" --reset-offsets --to-earliest --execute
  check group-delete 'Deletion of requested|successful' "${groups[@]}" --delete --group "$group"
}

configs_and_cluster() {
  echo "{\"partitions\":[{\"topic\":\"$topic\",\"partition\":0,\"offset\":1}],\"version\":1}" > "$dir/delete.json"
  check delete-records 'low_watermark: 1' DeleteRecordsCommand "${server[@]}" --offset-json-file "$dir/delete.json"
  local config=(ConfigCommand "${server[@]}")
  check config-topic-alter 'Completed' "${config[@]}" --alter --entity-type topics --entity-name "$topic" \
    --add-config max.message.bytes=2000000,cleanup.policy=compact
  check config-topic-describe 'max.message.bytes=2000000' "${config[@]}" --describe --entity-type topics --entity-name "$topic"
  check config-broker-describe 'log.retention|sensitive|Dynamic configs' "${config[@]}" --describe --all \
    --entity-type brokers --entity-name "${NODE_ID:-1}"
  check log-dirs "$topic" LogDirsCommand "${server[@]}" --describe --topic-list "$topic"
  check leader-election 'Valid replica|already elected|successful|not needed' LeaderElectionCommand "${server[@]}" \
    --election-type preferred --topic "$topic" --partition 0
  check cluster-id 'Cluster ID' ClusterTool cluster-id "${server[@]}"
  check features 'share.version' FeatureCommand "${server[@]}" describe
  check client-metrics '!rror' ClientMetricsCommand "${server[@]}" --list
}

# copied NAME RECORDS: what is committed in the copy is each number up to RECORDS, once.
copied() {
  listed "$1" || return 0
  tool consumer.ConsoleConsumer "${server[@]}" --topic "$topic-copy" --from-beginning --isolation-level read_committed \
    --max-messages "$2" --timeout-ms 10000 > "$dir/$1.txt" 2> "$dir/$1.log" || true
  if sort -n "$dir/$1.txt" | cmp -s - <(seq 1 "$2"); then
    echo "pass $1"
  else
    echo "fail $1 $(wc -l < "$dir/$1.txt") records, of $(sort -u "$dir/$1.txt" | wc -l) numbers"
  fi
}

transactions() {
  local records=1000 transactions=(TransactionsCommand "${server[@]}")
  if listed transactional-copier || listed transactional-copier-group; then
    seq 1 $records | kcat -P -b "$broker" -t "$topic-numbers" -p 0 > "$dir/numbers.log" 2>&1 || true
  fi
  # Two copiers of one group, one after the other; each aborts some of its transactions.
  local copier=(TransactionalMessageCopier --broker-list "$broker" --input-topic "$topic-numbers" --input-partition 0
    --output-topic "$topic-copy" --consumer-group "copier-$run" --transaction-size 50 --enable-random-aborts)
  check transactional-copier '"remaining":0.*"totalProcessed":500|"totalProcessed":500.*"remaining":0' "${copier[@]}" \
    --transactional-id "copier-$run" --max-messages 500
  check transactional-copier-group '"totalProcessed":500' "${copier[@]}" \
    --transactional-id "copier-group-$run" --max-messages 500 --group-mode --use-group-metadata
  copied read-committed $records
  check transactional-producer-perf '2000 records sent' ProducerPerformance "${server[@]}" --topic "$topic-perf" --num-records 2000 \
    --record-size 200 --throughput 5000 --transactional-id "perf-$run" --transaction-duration-ms 50
  check transaction-list "copier-$run\s+[0-9]+\s+[0-9]+\s+CompleteCommit" "${transactions[@]}" list
  check transaction-describe "copier-$run.*CompleteCommit" "${transactions[@]}" describe --transactional-id "copier-$run"
  hanging_transaction
}

# hanging_transaction: a producer dies in its transaction, and an operator ends it.
hanging_transaction() {
  local transactions=(TransactionsCommand "${server[@]}")
  local held=(--topic "$topic-held" --partition 0)
  if listed transaction-abort; then
    ("$cache/venv/bin/python" "$here/../python/transactions.py" open "$broker" "$topic-held" "held-$run" || true) > "$dir/open.log" 2>&1
  fi
  check transaction-describe-open "held-$run.*Ongoing.*$topic-held-0" "${transactions[@]}" describe --transactional-id "held-$run"
  check transaction-describe-producers '^[0-9]+\s.*\s0\s*$' "${transactions[@]}" describe-producers "${held[@]}"
  check transaction-find-hanging "!^$topic" "${transactions[@]}" find-hanging "${held[@]}" --max-transaction-timeout 0 # its coordinator knows it
  check transaction-abort '!rror' "${transactions[@]}" abort "${held[@]}" --start-offset 0
  check transaction-aborted '^[0-9]+\s.*\sNone\s*$' "${transactions[@]}" describe-producers "${held[@]}"
  check transaction-terminate '!rror' "${transactions[@]}" forceTerminateTransaction --transactionalId "held-$run"
  check transaction-terminated "held-$run.*(CompleteAbort|Empty)" "${transactions[@]}" describe --transactional-id "held-$run"
}

topics
produce_and_consume
share_groups
groups
configs_and_cluster
transactions
check topic-delete '!rror' TopicCommand "${server[@]}" --delete --topic "$topic.*"
