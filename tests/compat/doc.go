// Package compat runs other people's Kafka clients, tools and test suites against a
// broker: kcat, confluent-kafka for Python, Kafka's own Java tools and kgo.
//
// It has only tests, and they run when LACUNA_COMPAT=1 is set, after setup.sh has
// installed what they need. They start the broker themselves: Lacuna by default, Apache
// Kafka with PEER=kafka, which proves the tests; or they use the one at BROKER=HOST:PORT.
// The README beside this file says what each test shows.
package compat
