package metadata

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// TopicID is a topic's UUID. A topic deleted and made anew has another. The zero value
// is no topic.
type TopicID [16]byte

// NewTopicID makes an id of a random UUID. Like Kafka's, its text does not begin with a
// dash, which tools would take for an option.
func NewTopicID(random [16]byte) TopicID {
	if random[0]>>2 == 62 { // the digit "-"
		random[0] ^= 0x80
	}
	return TopicID(random)
}

// String writes the id as Kafka does, in 22 characters of URL-safe base64.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// ParseTopicID reads what String writes.
func ParseTopicID(s string) (TopicID, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != len(TopicID{}) {
		return TopicID{}, fmt.Errorf("topic id %q is not 22 characters of base64", s)
	}
	return TopicID(b), nil
}

// MarshalText is String, so that JSON holds ids as people read them.
func (id TopicID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is ParseTopicID.
func (id *TopicID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseTopicID(string(b))
	return err
}

// Topic is one topic. It is not changed once it is part of an image.
type Topic struct {
	Name       string            `json:"name"`
	ID         TopicID           `json:"id"`
	Partitions int32             `json:"partitions"`
	Internal   bool              `json:"internal,omitempty"`
	Config     map[string]string `json:"config,omitempty"` // what was set on the topic itself
}

// MaxTopicNameLength is the length of the longest topic name, in bytes.
const MaxTopicNameLength = 249

// ValidateTopicName refuses names that Kafka refuses: empty, "." and "..", longer than
// 249 bytes, or with other characters than ASCII letters, digits, '.', '_' and '-'.
func ValidateTopicName(name string) error {
	const invalid = "Topic name is invalid: "
	switch {
	case name == "":
		return refuse(ErrInvalidTopicName, invalid+"the empty string is not allowed")
	case name == "." || name == "..":
		return refuse(ErrInvalidTopicName, invalid+"'%s' is not allowed", name)
	case len(name) > MaxTopicNameLength:
		return refuse(ErrInvalidTopicName, invalid+"the length of '%s' is longer than the max allowed length %d", name, MaxTopicNameLength)
	}
	for i := range len(name) {
		if !isNameByte(name[i]) {
			return refuse(ErrInvalidTopicName, invalid+"'%s' contains one or more characters other than "+
				"ASCII alphanumerics, '.', '_' and '-'", name)
		}
	}
	return nil
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// collisionKey is the name as metrics would show it. Two topics must not share one.
func collisionKey(name string) string { return strings.ReplaceAll(name, ".", "_") }
