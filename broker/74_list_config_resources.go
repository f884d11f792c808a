package broker

import (
	"strconv"

	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListConfigResources (74), versions 0 to 1: what there is to ask DescribeConfigs for.
//
// v0 lists subscriptions to client metrics, v1 added types (KIP-1142).
func (b *Broker) listConfigResources(c *call, req *kmsg.ListConfigResourcesRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	kinds := req.ResourceTypes
	switch {
	case c.version == 0:
		kinds = []int8{int8(kmsg.ConfigResourceTypeClientMetrics)}
	case len(kinds) == 0:
		for _, k := range listedResources {
			kinds = append(kinds, int8(k))
		}
	}
	image := b.controller.image.Load()
	seen := make(map[int8]bool, len(kinds))
	for _, kind := range kinds {
		if seen[kind] {
			continue
		}
		seen[kind] = true
		names, ok := b.configResources(image, kmsg.ConfigResourceType(kind))
		if !ok {
			resp.ErrorCode, resp.ConfigResources = kerr.UnsupportedVersion.Code, nil
			return resp
		}
		for _, name := range names {
			at := kmsg.NewListConfigResourcesResponseConfigResource()
			at.Name, at.Type = name, kind
			resp.ConfigResources = append(resp.ConfigResources, at)
		}
	}
	return resp
}

// listedResources are the types of resources that are listed.
var listedResources = []kmsg.ConfigResourceType{
	kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger,
	kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeGroupConfig,
}

// configResources are the names of a type of resources; of groups and subscriptions those
// with settings of their own.
func (b *Broker) configResources(image *metadata.Image, kind kmsg.ConfigResourceType) (names []string, ok bool) {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		for t := range image.Topics() {
			names = append(names, t.Name)
		}
	case kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger:
		names = []string{strconv.Itoa(int(b.nodeID))}
	case kmsg.ConfigResourceTypeClientMetrics:
		names = image.Configured(metadata.ClientMetrics)
	case kmsg.ConfigResourceTypeGroupConfig:
		names = image.Configured(metadata.Group)
	default:
		return nil, false
	}
	return names, true
}
