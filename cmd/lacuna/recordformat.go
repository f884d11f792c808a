package main

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordFormat appends a record in the form that the user wants.
type recordFormat func(dst []byte, r *kgo.Record) ([]byte, error)

// newRecordFormat is JSON, kgo's format language, or by default the value as a line, with
// the key before it if there is a delimiter.
func newRecordFormat(output, layout, keyDelimiter string) (recordFormat, error) {
	switch {
	case output == "json":
		return appendRecordJSON, nil
	case layout != "":
		unescaped, err := unescape(layout)
		if err != nil {
			return nil, err
		}
		f, err := kgo.NewRecordFormatter(unescaped)
		if err != nil {
			return nil, usagef("--format %q: %w", layout, err)
		}
		return func(dst []byte, r *kgo.Record) ([]byte, error) { return f.AppendRecord(dst, r), nil }, nil
	}
	return func(dst []byte, r *kgo.Record) ([]byte, error) {
		if keyDelimiter != "" {
			dst = append(append(dst, r.Key...), keyDelimiter...)
		}
		return append(append(dst, r.Value...), '\n'), nil
	}, nil
}

// unescape reads \n, \t and the like, which a shell leaves as they are.
func unescape(s string) (string, error) {
	out := make([]byte, 0, len(s))
	for len(s) > 0 {
		if s[0] == '"' { // only strconv thinks that it ends something
			out, s = append(out, '"'), s[1:]
			continue
		}
		c, multibyte, tail, err := strconv.UnquoteChar(s, 0)
		if err != nil {
			return "", usagef("--format: bad escape at %q", s)
		}
		if multibyte {
			out = utf8.AppendRune(out, c)
		} else {
			out = append(out, byte(c))
		}
		s = tail
	}
	return string(out), nil
}

// recordJSON is a record for programs. Bytes that are not UTF-8 are in base64, in the
// field of that name; null and absent are the same.
type recordJSON struct {
	Topic       string       `json:"topic"`
	Partition   int32        `json:"partition"`
	Offset      int64        `json:"offset"`
	TimestampMs int64        `json:"timestamp_ms"`
	Key         *string      `json:"key,omitempty"`
	KeyBase64   string       `json:"key_base64,omitempty"`
	Value       *string      `json:"value,omitempty"`
	ValueBase64 string       `json:"value_base64,omitempty"`
	Headers     []headerJSON `json:"headers,omitempty"`
}

type headerJSON struct {
	Key         string  `json:"key"`
	Value       *string `json:"value,omitempty"`
	ValueBase64 string  `json:"value_base64,omitempty"`
}

func appendRecordJSON(dst []byte, r *kgo.Record) ([]byte, error) {
	out := recordJSON{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, TimestampMs: r.Timestamp.UnixMilli()}
	out.Key, out.KeyBase64 = textOrBase64(r.Key)
	out.Value, out.ValueBase64 = textOrBase64(r.Value)
	for _, h := range r.Headers {
		header := headerJSON{Key: h.Key}
		header.Value, header.ValueBase64 = textOrBase64(h.Value)
		out.Headers = append(out.Headers, header)
	}
	line, err := json.Marshal(out)
	if err != nil {
		return dst, err
	}
	return append(append(dst, line...), '\n'), nil
}

func textOrBase64(b []byte) (text *string, encoded string) {
	switch {
	case b == nil:
		return nil, ""
	case utf8.Valid(b):
		s := string(b)
		return &s, ""
	}
	return nil, base64.StdEncoding.EncodeToString(b)
}
