package configs

import (
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Op is what an incremental change does, numbered as on the wire.
type Op int8

// The operations. Append and Subtract are for lists.
const (
	OpSet      Op = 0
	OpDelete   Op = 1
	OpAppend   Op = 2
	OpSubtract Op = 3
)

// Change is one incremental change.
type Change struct {
	Name  string
	Op    Op
	Value *string // nil only with OpDelete
}

// Alter is what was set, with the changes. The values are not checked, but by the
// Validate functions.
func (t *Table) Alter(set map[string]string, changes []Change) (map[string]string, error) {
	altered := maps.Clone(set)
	if altered == nil {
		altered = map[string]string{}
	}
	seen := map[string]bool{}
	for _, c := range changes {
		if seen[c.Name] {
			return nil, invalidRequest("Error due to duplicate config keys")
		}
		seen[c.Name] = true
		if c.Value == nil && c.Op != OpDelete {
			return nil, invalidRequest("Null value not supported for : %s", c.Name)
		}
		if err := t.apply(altered, c); err != nil {
			return nil, err
		}
	}
	return altered, nil
}

func (t *Table) apply(set map[string]string, c Change) error {
	switch c.Op {
	case OpSet:
		set[c.Name] = *c.Value
	case OpDelete:
		delete(set, c.Name)
	case OpAppend, OpSubtract:
		d := t.Find(c.Name)
		if d == nil || d.Type != List {
			verb := "APPEND to"
			if c.Op == OpSubtract {
				verb = "SUBTRACT from"
			}
			return invalidConfig("Can't %s key %s because its type is not LIST.", verb, c.Name)
		}
		set[c.Name] = changeList(d, set, c)
	default:
		return invalidRequest("Unknown operation %d for configuration %s", c.Op, c.Name)
	}
	return nil
}

// changeList adds items to a list, or takes some away. A list that is not set begins as
// its default.
func changeList(d *Def, set map[string]string, c Change) string {
	current, ok := set[d.Name]
	if !ok {
		current = d.Default
	}
	items := SplitList(current)
	for _, item := range SplitList(*c.Value) {
		at := slices.Index(items, item)
		if c.Op == OpAppend && at < 0 {
			items = append(items, item)
		} else if c.Op == OpSubtract && at >= 0 {
			items = slices.Delete(items, at, at+1)
		}
	}
	return strings.Join(items, ",")
}

// check checks names and values by a table. The first bad one by name is told.
func (t *Table) check(set map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		d := t.Find(name)
		if d == nil {
			return invalidConfig("Unknown %s config name: %s", t.kind, name)
		}
		if err := d.Validate(set[name]); err != nil {
			return err
		}
	}
	return nil
}

// ValidateTopic checks what is to be set for a topic.
func (b *Broker) ValidateTopic(set map[string]string) error {
	if err := Topics.check(set); err != nil {
		return err
	}
	v := b.Topic(set)
	if v.Bool("remote.storage.enable") {
		return invalidConfig("Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.")
	}
	if low, high := v.Int("min.compaction.lag.ms"), v.Int("max.compaction.lag.ms"); low > high {
		return invalidConfig("conflict topic config setting min.compaction.lag.ms (%d) > max.compaction.lag.ms (%d)", low, high)
	}
	return nil
}

// groupRanges are the settings of a group that the broker bounds: its settings hold the
// bounds.
var groupRanges = []struct{ name, min, max string }{
	{"consumer.assignment.interval.ms", "group.consumer.min.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"},
	{"consumer.heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"},
	{"consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"},
	{"share.assignment.interval.ms", "group.share.min.assignment.interval.ms", "group.share.max.assignment.interval.ms"},
	{"share.delivery.count.limit", "group.share.min.delivery.count.limit", "group.share.max.delivery.count.limit"},
	{"share.heartbeat.interval.ms", "group.share.min.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"},
	{"share.partition.max.record.locks", "group.share.min.partition.max.record.locks", "group.share.max.partition.max.record.locks"},
	{"share.record.lock.duration.ms", "group.share.min.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"},
	{"share.session.timeout.ms", "group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"},
}

// heartbeatPairs are the intervals that must be shorter than their time-outs.
var heartbeatPairs = [][2]string{
	{"consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"},
	{"share.heartbeat.interval.ms", "share.session.timeout.ms"},
}

// ValidateGroup checks what is to be set for a group.
func (b *Broker) ValidateGroup(set map[string]string) error {
	if err := Groups.check(set); err != nil {
		return err
	}
	v, broker := b.Group(set), b.Values()
	for _, r := range groupRanges {
		if _, ok := set[r.name]; !ok {
			continue
		}
		if n, low, high := v.Int(r.name), broker.Int(r.min), broker.Int(r.max); n < low || n > high {
			return invalidConfig("%s must be in the range %d to %d inclusive.", r.name, low, high)
		}
	}
	for _, pair := range heartbeatPairs {
		if v.Int(pair[0]) >= v.Int(pair[1]) {
			return invalidConfig("%s must be greater than %s", pair[1], pair[0])
		}
	}
	if strings.HasPrefix(set["errors.deadletterqueue.topic.name"], "__") {
		return invalidConfig("errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'")
	}
	if most := v.Int("share.retry.backoff.max.ms"); v.Int("share.retry.backoff.ms") > most {
		return invalidConfig("share.retry.backoff.ms must not be greater than share.retry.backoff.max.ms, which is %d", most)
	}
	return nil
}

// ValidateClientMetrics checks what is to be set for a subscription.
func ValidateClientMetrics(set map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		d := ClientMetrics.Find(name)
		if d == nil {
			return invalidRequest("Unknown client metrics configuration: %s", name)
		}
		if err := d.Validate(set[name]); err != nil {
			return asRequestError(err)
		}
		if name == "interval.ms" && between(100, 3_600_000)(strings.TrimSpace(set[name])) != "" {
			return invalidRequest("Invalid value %s for interval.ms, interval must be between 100 and 3600000 (1 hour)", set[name])
		}
	}
	return nil
}

// ValidateBroker checks what is to be set while brokers run: for one of them, or for
// all. Only what differs from before is checked to be changeable.
func ValidateBroker(before, set map[string]string, oneBroker bool) error {
	var fixed, single []string
	names := map[string]string{}
	maps.Copy(names, before)
	maps.Copy(names, set)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, had := before[name]
		to, has := set[name]
		if had == has && was == to {
			continue
		}
		d := Brokers.Find(name)
		switch {
		case d == nil && has:
			return invalidRequest("Unknown broker config name: %s", name)
		case d == nil:
		case d.Scope == ReadOnly || d.Scope == Derived:
			fixed = append(fixed, name)
		case d.Scope == PerBroker && !oneBroker:
			single = append(single, name)
		}
	}
	if len(fixed) > 0 {
		return invalidRequest("Cannot update these configs dynamically: [%s]", strings.Join(fixed, ", "))
	}
	if len(single) > 0 {
		return invalidRequest("Cannot update these configs at default cluster level, broker id must be specified: [%s]", strings.Join(single, ", "))
	}
	return asRequestError(Brokers.check(set))
}

// validateStatic checks the settings that a broker is started with, for a person who
// wrote them.
func validateStatic(set map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		d := Brokers.Find(name)
		switch {
		case d == nil:
			return &Error{kerr.InvalidConfig, "unknown setting " + name + suggestion(name)}
		case d.Scope == Derived:
			return &Error{kerr.InvalidConfig, "setting " + name + " cannot be given here: " + d.Doc}
		}
		if err := d.Validate(set[name]); err != nil {
			return err
		}
	}
	return nil
}
