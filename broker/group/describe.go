package group

import (
	"slices"
	"strings"

	"github.com/lacunamq/lacuna/broker/share"
)

// Listed is a group as ListGroups shows it.
type Listed struct {
	ID           string
	Kind         Kind
	State        string
	ProtocolType string
}

// Filter chooses groups by the names of states and kinds, in any case; an empty list
// chooses all.
type Filter struct{ States, Kinds []string }

// List lists the groups that the filter chooses, by id.
func (s *State) List(f Filter) []Listed {
	list := make([]Listed, 0, len(s.groups))
	for _, id := range s.ids() {
		g := s.groups[id].listed()
		if chosen(f.States, g.State) && chosen(f.Kinds, string(g.Kind)) {
			list = append(list, g)
		}
	}
	return list
}

func (e *entry) listed() Listed {
	if e.share != nil {
		return Listed{ID: e.id, Kind: Share, State: e.share.State(), ProtocolType: share.ProtocolType}
	}
	return Listed{ID: e.id, Kind: Classic, State: string(e.classic.state), ProtocolType: e.classic.protocolType}
}

func chosen(names []string, name string) bool {
	return len(names) == 0 || slices.ContainsFunc(names, func(n string) bool {
		return strings.EqualFold(strings.TrimSpace(n), name)
	})
}

// Description is a group as DescribeGroups shows it.
type Description struct {
	ID           string
	State        ClassicState
	Generation   int32
	ProtocolType string
	Protocol     string // while stable
	Members      []MemberDescription
}

// MemberDescription is a member; its slices are read only.
type MemberDescription struct {
	ID, InstanceID, ClientID, ClientHost string
	Metadata                             []byte // while stable
	Assignment                           []byte
}

// Describe describes a classic group, and tells whether there is one of that id.
func (s *State) Describe(id string) (Description, bool) {
	c, err := s.classicGroup(id)
	if err != nil {
		return Description{ID: id, State: Dead}, false
	}
	d := Description{
		ID: id, State: c.state, Generation: c.generation, ProtocolType: c.protocolType,
		Members: make([]MemberDescription, 0, len(c.members)),
	}
	if c.state == Stable {
		d.Protocol = c.protocol
	}
	for _, m := range c.members {
		md := MemberDescription{
			ID: m.id, InstanceID: m.instanceID, ClientID: m.clientID, ClientHost: m.clientHost, Assignment: m.assignment,
		}
		if c.state == Stable {
			md.Metadata = m.metadata(c.protocol)
		}
		d.Members = append(d.Members, md)
	}
	return d, true
}
