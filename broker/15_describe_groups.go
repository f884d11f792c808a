package broker

import (
	"context"
	"fmt"
	"math"

	"github.com/lacunamq/lacuna/broker/group"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupOperations are what a client may do with a group, as a bit for each ACL operation:
// without an authorizer everything.
const groupOperations = 1<<kmsg.ACLOperationRead | 1<<kmsg.ACLOperationDelete | 1<<kmsg.ACLOperationDescribe |
	1<<kmsg.ACLOperationDescribeConfigs | 1<<kmsg.ACLOperationAlterConfigs

// DescribeGroups (15), versions 0 to 6. It describes classic groups only.
//
// v3 added the operations that a client may do, v4 instance ids, v5 flexible versions, v6
// an error for groups that do not exist (KIP-1043), which are Dead before.
func (b *Broker) describeGroups(c *call, req *kmsg.DescribeGroupsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, id := range req.Groups {
		at := kmsg.NewDescribeGroupsResponseGroup()
		at.Group, at.AuthorizedOperations = id, math.MinInt32
		d, found, err := b.groups.Describe(c.ctx, id)
		switch {
		case err != nil:
			at.ErrorCode, at.ErrorMessage = b.coordinatorAnswer(err)
			resp.Groups = append(resp.Groups, at)
			continue
		case !found && c.version >= 6:
			at.ErrorCode = kerr.GroupIDNotFound.Code
			at.ErrorMessage = kmsg.StringPtr(b.noClassicGroup(c.ctx, id))
		case req.IncludeAuthorizedOperations:
			at.AuthorizedOperations = groupOperations
		}
		if !c.take(describedBytes(&d)) {
			return nil
		}
		describeGroup(&d, &at)
		resp.Groups = append(resp.Groups, at)
	}
	return resp
}

// noClassicGroup says why there is nothing to describe of a group.
func (b *Broker) noClassicGroup(ctx context.Context, id string) string {
	if share, err := b.groups.Share(ctx, id); err == nil && share != nil {
		return fmt.Sprintf("Group %s is not a classic group.", id)
	}
	return fmt.Sprintf("Group %s not found.", id)
}

// describedBytes is what a group takes in an answer, decoded and encoded.
func describedBytes(d *group.Description) (n int) {
	for i := range d.Members {
		m := &d.Members[i]
		n += 300 + len(m.ID) + len(m.ClientID) + len(m.ClientHost) + len(m.Metadata) + len(m.Assignment)
	}
	return n
}

func describeGroup(d *group.Description, at *kmsg.DescribeGroupsResponseGroup) {
	at.State, at.ProtocolType, at.Protocol = string(d.State), d.ProtocolType, d.Protocol
	for _, m := range d.Members {
		at.Members = append(at.Members, kmsg.DescribeGroupsResponseGroupMember{
			MemberID: m.ID, InstanceID: orNull(m.InstanceID), ClientID: m.ClientID, ClientHost: m.ClientHost,
			ProtocolMetadata: m.Metadata, MemberAssignment: m.Assignment,
		})
	}
}
