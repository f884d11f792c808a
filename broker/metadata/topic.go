package metadata

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// TopicID is a topic's UUID. A topic deleted and made anew has another.
type TopicID [16]byte

// String writes the id as Kafka does, in 22 characters of URL-safe base64.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// ParseTopicID reads what String writes.
func ParseTopicID(s string) (TopicID, error) {
	var id TopicID
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("topic id %q is not 22 characters of base64", s)
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

// ErrInvalidTopicName marks a name that no topic may have.
var ErrInvalidTopicName = errors.New("invalid topic name")

// ValidateTopicName refuses names that Kafka refuses: empty, "." and "..", longer than
// 249 bytes, or with other characters than ASCII letters, digits, '.', '_' and '-'.
func ValidateTopicName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidTopicName)
	case name == "." || name == "..":
		return fmt.Errorf("%w: %q", ErrInvalidTopicName, name)
	case len(name) > MaxTopicNameLength:
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrInvalidTopicName, len(name), MaxTopicNameLength)
	}
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '.' && c != '_' && c != '-' {
			return fmt.Errorf("%w: %q holds a character other than ASCII letters, digits, '.', '_' and '-'", ErrInvalidTopicName, name)
		}
	}
	return nil
}

// collisionKey is the name as metrics would show it. Two topics must not share one.
func collisionKey(name string) string { return strings.ReplaceAll(name, ".", "_") }
