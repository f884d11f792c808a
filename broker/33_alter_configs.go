package broker

import (
	"github.com/lacunamq/lacuna/broker/configs"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterConfigs (33), versions 0 to 2: replaces all that was set for a resource. What is
// not named goes back to its default.
//
// v2 added flexible versions.
func (b *Broker) alterConfigs(_ *call, req *kmsg.AlterConfigsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	named := onceEach{}
	for i := range req.Resources {
		named[resourceKey{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	for i := range req.Resources {
		r := &req.Resources[i]
		key := resourceKey{r.ResourceType, r.ResourceName}
		at := kmsg.NewAlterConfigsResponseResource()
		at.ResourceType, at.ResourceName = r.ResourceType, r.ResourceName
		err := named.check(key)
		if err == nil {
			err = b.alterSettings(key, req.ValidateOnly, func(_ *configs.Table, _ map[string]string) (map[string]string, error) {
				return replacement(r.Configs)
			})
		}
		if err != nil {
			at.ErrorCode, at.ErrorMessage = b.errorAnswer(err)
		}
		resp.Resources = append(resp.Resources, at)
	}
	return resp
}

// replacement is what a resource is to have set, and nothing else.
func replacement(req []kmsg.AlterConfigsRequestResourceConfig) (map[string]string, error) {
	set := make(map[string]string, len(req))
	for _, c := range req {
		if c.Value == nil {
			return nil, refusal(kerr.InvalidRequest, "Null value not supported for : %s", c.Name)
		}
		if _, twice := set[c.Name]; twice {
			return nil, refusal(kerr.InvalidRequest, "Error due to duplicate config keys")
		}
		set[c.Name] = *c.Value
	}
	return set, nil
}
