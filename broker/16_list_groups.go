package broker

import (
	"github.com/lacunamq/lacuna/broker/group"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListGroups (16), versions 0 to 5.
//
// v3 added flexible versions, v4 states (KIP-518), v5 the types of groups (KIP-848).
func (b *Broker) listGroups(c *call, req *kmsg.ListGroupsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	list, err := b.groups.List(c.ctx, group.Filter{States: req.StatesFilter, Kinds: req.TypesFilter})
	if err != nil {
		resp.ErrorCode = b.codeOf(err)
		return resp
	}
	const groupBytes = 250 // decoded and encoded
	if !c.take(len(list) * groupBytes) {
		return nil
	}
	for _, g := range list {
		at := kmsg.NewListGroupsResponseGroup()
		at.Group, at.ProtocolType, at.GroupState, at.GroupType = g.ID, g.ProtocolType, g.State, string(g.Kind)
		resp.Groups = append(resp.Groups, at)
	}
	return resp
}
