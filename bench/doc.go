// Package bench measures a broker through its protocol. Its benchmarks start a broker
// inside the test, or run against any Kafka-protocol broker for what stock Kafka can
// do too:
//
//	go test -bench . ./bench
//	go test -bench 'Produce|Consume' ./bench -broker 127.0.0.1:9092
package bench
