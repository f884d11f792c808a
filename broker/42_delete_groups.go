package broker

import (
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
		if err := b.groups.Delete(c.ctx, id, nil); err != nil {
			at.ErrorCode, at.ErrorMessage = b.errorAnswer(err)
		}
		resp.Groups = append(resp.Groups, at)
	}
	return resp
}
