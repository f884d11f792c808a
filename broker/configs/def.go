package configs

import (
	"cmp"
	"slices"
)

// Type is the type of a value, numbered as on the wire.
type Type int8

// The types of settings.
const (
	Boolean Type = 1
	String  Type = 2
	Int     Type = 3
	Short   Type = 4
	Long    Type = 5
	Double  Type = 6
	List    Type = 7 // comma-separated
)

// Scope tells whether a broker's setting can be changed while it runs.
type Scope int8

const (
	ReadOnly  Scope = iota // only at the start
	Dynamic                // for one broker or for all
	PerBroker              // for one broker, by its id
	Derived                // from other things, such as flags
)

// Def is one setting.
type Def struct {
	Name    string
	Type    Type
	Default string
	Null    bool // has no default
	Doc     string
	Check   Check // of a value that fits Type; nil: all are fine
	Scope   Scope // of broker settings
	Unused  bool  // stored and described, and no more
	Hidden  bool  // not described unless it is set
	// From are the broker's settings that give the default of a topic's or group's, or
	// the aliases of a broker's, the first that is set.
	From []Alias
}

// Alias is another setting that gives a value, in another unit.
type Alias struct {
	Name   string
	Factor int64 // of the unit; 0 for what is no number
}

// noEffect ends the documentation of an unused setting.
const noEffect = " Lacuna stores and describes it; it has no effect."

// Documentation is the whole documentation.
func (d *Def) Documentation() string {
	if d.Unused {
		return d.Doc + noEffect
	}
	return d.Doc
}

// Table is the settings of one kind of resource.
type Table struct {
	kind   string // in messages: "topic"
	defs   map[string]*Def
	sorted []*Def // by name
}

func newTable(kind string, parts ...[]Def) *Table {
	t := &Table{kind: kind, defs: map[string]*Def{}}
	for _, defs := range parts {
		for i := range defs {
			d := &defs[i]
			if t.defs[d.Name] != nil {
				panic("configs: two settings named " + d.Name)
			}
			t.defs[d.Name] = d
			t.sorted = append(t.sorted, d)
		}
	}
	slices.SortFunc(t.sorted, func(a, b *Def) int { return cmp.Compare(a.Name, b.Name) })
	return t
}

// Find is the setting of that name, nil if there is none.
func (t *Table) Find(name string) *Def { return t.defs[name] }

// All are the settings by name. The slice is not to be changed.
func (t *Table) All() []*Def { return t.sorted }

// The tables.
var (
	Topics        = newTable("topic", topicDefs, topicOwnDefs)
	Brokers       = newTable("broker", brokerServerDefs, brokerLogDefs, brokerGroupDefs, brokerShareDefs, brokerTransactionDefs, brokerOwnDefs)
	Groups        = newTable("group", groupDefs, groupOwnDefs)
	ClientMetrics = newTable("client metrics", clientMetricsDefs)
)
