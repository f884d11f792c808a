package broker

import (
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// extensionField gives the extension's tagged field among tags, if there is one.
func extensionField(tags *kmsg.Tags) (field []byte, ok bool) {
	if tags.Len() == 0 {
		return nil, false
	}
	tags.Each(func(tag uint32, content []byte) {
		if tag == protocol.ExtensionTag {
			field, ok = content, true
		}
	})
	return field, ok
}
