package configs

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// Source tells where a value comes from, numbered as on the wire.
type Source int8

// The sources of values.
const (
	sourceNone          Source = 0
	SourceTopic         Source = 1 // set for the topic
	SourceBroker        Source = 2 // set for the broker while it ran
	SourceDefaultBroker Source = 3 // set for all brokers while they ran
	SourceStatic        Source = 4 // what the broker was started with
	SourceDefault       Source = 5
	SourceLogger        Source = 6
	SourceClientMetrics Source = 7
	SourceGroup         Source = 8
)

// Broker is the settings of one broker at one moment. It never changes.
type Broker struct {
	static  map[string]string // what it was started with
	cluster map[string]string // set for all brokers
	node    map[string]string // set for this one
}

// NewBroker makes the settings that a broker is started with, by the names and values of
// a person.
func NewBroker(static map[string]string) (*Broker, error) {
	if err := validateStatic(static); err != nil {
		return nil, err
	}
	return &Broker{static: maps.Clone(static)}, nil
}

// WithDerived is the settings with those that follow from other things, such as the
// addresses that are listened on.
func (b *Broker) WithDerived(derived map[string]string) *Broker {
	static := maps.Clone(derived)
	maps.Copy(static, b.static)
	return &Broker{static: static, cluster: b.cluster, node: b.node}
}

// WithDynamic is the settings with what was set while brokers ran, for all of them and
// for this one. A value that is not valid any more is ignored.
func (b *Broker) WithDynamic(cluster, node map[string]string) *Broker {
	return &Broker{static: b.static, cluster: validDynamic(cluster), node: validDynamic(node)}
}

func validDynamic(values map[string]string) map[string]string {
	valid := map[string]string{}
	for name, value := range values {
		if d := Brokers.Find(name); d != nil && d.Scope != ReadOnly && d.Scope != Derived && d.Validate(value) == nil {
			valid[name] = value
		}
	}
	return valid
}

// found is one of the values that a setting could have.
type found struct {
	name   string
	value  string
	source Source
	factor int64
}

// layers are the values of a broker's setting, the one that counts first.
func (b *Broker) layers(d *Def, factor int64) []found {
	var all []found
	for _, layer := range []struct {
		values map[string]string
		source Source
	}{{b.node, SourceBroker}, {b.cluster, SourceDefaultBroker}, {b.static, SourceStatic}} {
		if value, ok := layer.values[d.Name]; ok {
			all = append(all, found{d.Name, value, layer.source, factor})
		}
	}
	if !d.Null {
		all = append(all, found{d.Name, d.Default, SourceDefault, factor})
	}
	return all
}

// chain are the values of a broker's setting and of its aliases, the one that counts
// first.
func (b *Broker) chain(d *Def) []found { return append(b.layers(d, 1), b.aliases(d.From)...) }

func (b *Broker) aliases(aliases []Alias) []found {
	var all []found
	for _, a := range aliases {
		all = append(all, b.layers(Brokers.Find(a.Name), a.Factor)...)
	}
	return all
}

// scaled is the value in the unit of the setting that it stands for.
func (f *found) scaled() string {
	if f.factor <= 1 {
		return f.value
	}
	n, err := strconv.ParseInt(strings.TrimSpace(f.value), 10, 64)
	if err != nil || n < 0 {
		return "-1"
	}
	if n > (1<<63-1)/f.factor {
		return maxLong
	}
	return strconv.FormatInt(n*f.factor, 10)
}

// Values are settings with their effective values. Asking for a name that the table
// does not have, or for another type, is a mistake of the programmer, and panics.
type Values struct {
	table *Table
	// chain are the values that a setting could have, the one that counts first.
	chain func(*Def) []found
}

// Values are the broker's own settings.
func (b *Broker) Values() Values { return Values{Brokers, b.chain} }

// Topic are the settings of a topic with what was set for it.
func (b *Broker) Topic(set map[string]string) Values { return b.over(Topics, set, SourceTopic) }

// Group are the settings of a group with what was set for it.
func (b *Broker) Group(set map[string]string) Values { return b.over(Groups, set, SourceGroup) }

// over lays what was set for a resource over the broker's defaults.
func (b *Broker) over(table *Table, set map[string]string, source Source) Values {
	return Values{table, func(d *Def) []found {
		var all []found
		if value, ok := set[d.Name]; ok && d.Validate(value) == nil {
			all = append(all, found{d.Name, value, source, 1})
		}
		all = append(all, b.aliases(d.From)...)
		if len(d.From) == 0 && !d.Null {
			all = append(all, found{d.Name, d.Default, SourceDefault, 1})
		}
		return all
	}}
}

// value is the effective value of a setting, and where it comes from.
func (v Values) value(d *Def) (value string, source Source) {
	if all := v.chain(d); len(all) > 0 {
		return all[0].scaled(), all[0].source
	}
	return d.Default, sourceNone
}

func (v Values) find(name string, types ...Type) string {
	d := v.table.Find(name)
	if d == nil {
		panic(fmt.Sprintf("configs: there is no %s setting %s", v.table.kind, name))
	}
	for _, t := range types {
		if d.Type == t {
			value, _ := v.value(d)
			return strings.TrimSpace(value)
		}
	}
	panic(fmt.Sprintf("configs: %s setting %s has the type %d", v.table.kind, name, d.Type))
}

// Set tells that a setting was set on the resource itself.
func (v Values) Set(name string) bool {
	d := v.table.Find(name)
	_, source := v.value(d)
	return source == SourceTopic || source == SourceGroup
}

// Int is the value of a number; a setting without one is -1.
func (v Values) Int(name string) int64 {
	n, err := strconv.ParseInt(v.find(name, Short, Int, Long), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// Bool is the value of a switch.
func (v Values) Bool(name string) bool { return strings.EqualFold(v.find(name, Boolean), "true") }

// Float is the value of a number with a fraction.
func (v Values) Float(name string) float64 {
	f, err := strconv.ParseFloat(v.find(name, Double), 64)
	if err != nil {
		return 0
	}
	return f
}

// Text is the value of a text.
func (v Values) Text(name string) string { return v.find(name, String, List) }

// List are the items of a list.
func (v Values) List(name string) []string { return SplitList(v.find(name, List)) }
