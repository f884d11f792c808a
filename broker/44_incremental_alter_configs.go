package broker

import (
	"github.com/lacunamq/lacuna/broker/configs"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// IncrementalAlterConfigs (44), versions 0 to 1: sets and resets single settings, and
// adds to lists and takes from them.
//
// v1 added flexible versions.
func (b *Broker) incrementalAlterConfigs(_ *call, req *kmsg.IncrementalAlterConfigsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	named := onceEach{}
	for i := range req.Resources {
		named[resourceKey{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	for i := range req.Resources {
		r := &req.Resources[i]
		key := resourceKey{r.ResourceType, r.ResourceName}
		at := kmsg.NewIncrementalAlterConfigsResponseResource()
		at.ResourceType, at.ResourceName = r.ResourceType, r.ResourceName
		err := named.check(key)
		if err == nil {
			err = b.alterSettings(key, req.ValidateOnly, func(table *configs.Table, before map[string]string) (map[string]string, error) {
				return table.Alter(before, changesOf(r.Configs))
			})
		}
		if err != nil {
			at.ErrorCode, at.ErrorMessage = b.errorAnswer(err)
		}
		resp.Resources = append(resp.Resources, at)
	}
	return resp
}

func changesOf(req []kmsg.IncrementalAlterConfigsRequestResourceConfig) []configs.Change {
	changes := make([]configs.Change, len(req))
	for i, c := range req {
		changes[i] = configs.Change{Name: c.Name, Op: configs.Op(c.Op), Value: c.Value}
	}
	return changes
}
