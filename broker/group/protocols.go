package group

import (
	"encoding/binary"
)

// distinct drops repeated names; the first counts. It may return the slice itself.
func distinct(protocols []Protocol) []Protocol {
	if len(protocols) < 2 {
		return protocols
	}
	seen := make(map[string]struct{}, len(protocols))
	for i := range protocols {
		seen[protocols[i].Name] = struct{}{}
	}
	if len(seen) == len(protocols) {
		return protocols
	}
	clear(seen)
	kept := make([]Protocol, 0, len(protocols))
	for _, p := range protocols {
		if _, ok := seen[p.Name]; !ok {
			seen[p.Name] = struct{}{}
			kept = append(kept, p)
		}
	}
	return kept
}

// ownProtocols copies what a request says, whose buffer is the caller's.
func ownProtocols(protocols []Protocol) []Protocol {
	own := make([]Protocol, 0, len(protocols))
	for _, p := range distinct(protocols) {
		own = append(own, Protocol{Name: p.Name, Metadata: owned(p.Metadata)})
	}
	return own
}

// owned copies bytes of a request. Null and empty are the same here, as they are in the
// log.
func owned(b []byte) []byte { return append([]byte{}, b...) }

// supports tells whether a member of that type with those protocols could join: some
// protocol must remain that everybody supports.
func (c *classic) supports(protocolType string, protocols []Protocol) bool {
	if c.state == Empty {
		return protocolType != "" && len(protocols) > 0
	}
	if protocolType != c.protocolType {
		return false
	}
	for i := range protocols {
		if c.supported[protocols[i].Name] == len(c.members) {
			return true
		}
	}
	return false
}

// selectProtocol takes the protocol with most votes; a member votes for the first of its
// own that all support. Of equals it is the one that the longest-standing member likes
// best.
func (c *classic) selectProtocol() string {
	votes := make(map[string]int)
	for _, m := range c.members {
		for i := range m.protocols {
			if name := m.protocols[i].Name; c.supported[name] == len(c.members) {
				votes[name]++
				break
			}
		}
	}
	selected := ""
	for i := range c.members[0].protocols {
		if name := c.members[0].protocols[i].Name; votes[name] > votes[selected] {
			selected = name
		}
	}
	return selected
}

// noteSubscriptions reads what the members of a consumer group are subscribed to, in the
// protocol of this generation.
func (c *classic) noteSubscriptions() {
	c.subscribed, c.known = nil, false
	if c.protocolType != ConsumerProtocolType {
		return
	}
	topics := make(map[string]struct{})
	for _, m := range c.members {
		if !subscription(m.metadata(c.protocol), topics) {
			return
		}
	}
	c.subscribed, c.known = topics, true
}

// subscribes tells whether members read the topic, as far as one can tell: consumers
// whose subscriptions can't be read are taken to read any.
func (c *classic) subscribes(topic string) bool {
	if !c.known {
		return c.protocolType == ConsumerProtocolType
	}
	_, ok := c.subscribed[topic]
	return ok
}

// subscription adds the topics of a consumer's metadata (ConsumerProtocolSubscription) to
// topics, and tells whether the bytes could be read. All versions begin like version 0:
// a version, topics, user data.
func subscription(metadata []byte, topics map[string]struct{}) bool {
	if len(metadata) < 6 {
		return false
	}
	count := int32(binary.BigEndian.Uint32(metadata[2:]))
	rest := metadata[6:]
	if count < 0 || int64(count)*2 > int64(len(rest)) {
		return false
	}
	for range count {
		if len(rest) < 2 {
			return false
		}
		n := int(int16(binary.BigEndian.Uint16(rest)))
		if rest = rest[2:]; n < 0 || n > len(rest) {
			return false
		}
		topics[string(rest[:n])] = struct{}{}
		rest = rest[n:]
	}
	if len(rest) < 4 {
		return false
	}
	userData := int32(binary.BigEndian.Uint32(rest))
	return userData >= -1 && int64(userData) <= int64(len(rest)-4)
}
