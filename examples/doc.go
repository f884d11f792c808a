// Package examples holds small programs that show how stateful processors are written. Each
// needs a broker (lacuna serve) and makes the topics that it uses:
//
//	go run ./examples/latest      the latest reading of each sensor, emitted every minute
//	go run ./examples/wordcount README.md
//	go run ./examples/grow        a job that grows from 2 to 5 workers under load
package examples
