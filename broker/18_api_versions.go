package broker

import (
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ApiVersions (18), versions 0 to 5.
//
// v1 added the throttle time, v3 flexible versions, client software and features, v4
// features with a minimum of 0, v5 the cluster and node that the client wants to reach.
//
// A version above those served is answered with version 0, UNSUPPORTED_VERSION and the
// ranges (KIP-511), so that the client can choose again.
func (b *Broker) apiVersions(c *call, req *kmsg.ApiVersionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if served := b.apis.find(req.Key()); c.version > served.max {
		resp.SetVersion(0)
		resp.ErrorCode = kerr.UnsupportedVersion.Code
	}
	for _, a := range b.apis {
		if a == nil {
			continue
		}
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.key, a.min, a.max
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	for _, name := range b.extensionFeatures() {
		f := kmsg.NewApiVersionsResponseSupportedFeature()
		f.Name, f.MinVersion, f.MaxVersion = name, 1, 1
		resp.SupportedFeatures = append(resp.SupportedFeatures, f)
	}
	supported := kmsg.NewApiVersionsResponseSupportedFeature()
	supported.Name, supported.MinVersion, supported.MaxVersion = transactionFeature, 0, transactionV2
	if c.version < 4 {
		supported.MinVersion = 1 // these versions have no minimum of 0
	}
	resp.SupportedFeatures = append(resp.SupportedFeatures, supported)
	finalized := kmsg.NewApiVersionsResponseFinalizedFeature()
	finalized.Name, finalized.MinVersionLevel, finalized.MaxVersionLevel = transactionFeature, transactionV2, transactionV2
	resp.FinalizedFeatures = append(resp.FinalizedFeatures, finalized)
	resp.FinalizedFeaturesEpoch = 0
	return resp
}

// extensionFeatures names the parts of the extension that a client may use here.
func (b *Broker) extensionFeatures() []string {
	features := []string{protocol.FeatureKeyFilter, protocol.FeatureCooperativeDelivery}
	if b.individualCommitEnabled() {
		features = append(features, protocol.FeatureIndividualCommit)
	}
	return features
}

// newestApiVersions stands for a request of a version that is not served: only its
// version is known of it.
func newestApiVersions(version int16) *kmsg.ApiVersionsRequest {
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version = version
	return req
}
