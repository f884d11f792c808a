package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteGroups (42), versions 0 to 3.
//
// v2 added flexible versions, v3 error messages.
func (b *Broker) deleteGroups(c *call, req *kmsg.DeleteGroupsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	seen := make(map[string]bool, len(req.Groups))
	for _, id := range req.Groups {
		if seen[id] {
			continue
		}
		seen[id] = true
		at := kmsg.NewDeleteGroupsResponseGroup()
		at.Group = id
		if err := b.deleteGroup(c.ctx, id); err != nil {
			at.ErrorCode, at.ErrorMessage = b.coordinatorAnswer(err)
		}
		resp.Groups = append(resp.Groups, at)
	}
	return resp
}

// deleteGroup deletes a group with its ledgers.
func (b *Broker) deleteGroup(ctx context.Context, id string) error {
	return b.groups.Delete(ctx, id, func(ctx context.Context) error { return b.ledgers.DeleteGroup(ctx, id) })
}
