package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The endpoints that DescribeCluster can be asked for (KIP-919).
const (
	endpointBrokers     = 1
	endpointControllers = 2
)

// DescribeCluster (60), versions 0 to 2.
//
// v1 added the type of endpoint, v2 fenced brokers, of which there are none.
func (b *Broker) describeCluster(c *call, req *kmsg.DescribeClusterRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	resp.EndpointType = endpointBrokers
	if c.version >= 1 && req.EndpointType != endpointBrokers {
		refused := kerr.UnsupportedEndpointType
		if req.EndpointType == endpointControllers {
			refused = kerr.MismatchedEndpointType
		}
		resp.ErrorCode, resp.ErrorMessage = refused.Code, kmsg.StringPtr("only the broker endpoints are served here")
		return resp
	}
	resp.ClusterID, resp.ControllerID = b.clusterID, b.nodeID
	broker := kmsg.NewDescribeClusterResponseBroker()
	broker.NodeID, broker.Host, broker.Port = b.nodeID, c.conn.listener.host, c.conn.listener.port
	resp.Brokers = append(resp.Brokers, broker)
	return resp
}
