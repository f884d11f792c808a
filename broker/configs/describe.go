package configs

// Synonym is one of the values that a setting could have.
type Synonym struct {
	Name   string
	Value  string
	Source Source
}

// Entry describes a setting, as DescribeConfigs does.
type Entry struct {
	Def      *Def
	Value    *string // nil: none
	Source   Source
	ReadOnly bool
	Synonyms []Synonym // the one that counts first
}

// Describe describes the settings by name: those of names, or all if it is nil. Names
// that are none are left out.
func (v Values) Describe(names []string) []Entry {
	var entries []Entry
	if names == nil {
		for _, d := range v.table.sorted {
			if _, source := v.value(d); !d.Hidden || source != SourceDefault && source != sourceNone {
				entries = append(entries, v.entry(d))
			}
		}
		return entries
	}
	for _, name := range names {
		if d := v.table.Find(name); d != nil {
			entries = append(entries, v.entry(d))
		}
	}
	return entries
}

func (v Values) entry(d *Def) Entry {
	e := Entry{Def: d, Source: SourceDefault, ReadOnly: v.table == Brokers && (d.Scope == ReadOnly || d.Scope == Derived)}
	all := v.chain(d)
	if len(all) == 0 {
		return e
	}
	value := all[0].scaled()
	e.Value, e.Source = &value, all[0].source
	if !v.ownDefaultOnly(d, all) {
		// Nothing is set, and the default is another setting's: Kafka names no synonym, and a
		// broker's setting has no value then.
		if v.table == Brokers {
			e.Value = nil
		}
		return e
	}
	for _, f := range all {
		e.Synonyms = append(e.Synonyms, Synonym{f.name, f.value, f.source})
	}
	return e
}

// ownDefaultOnly tells whether something was set, or the default is of the setting
// itself or its first synonym.
func (v Values) ownDefaultOnly(d *Def, all []found) bool {
	if all[0].source != SourceDefault {
		return true
	}
	switch v.table {
	case Brokers:
		return all[0].name == d.Name
	case Topics:
		return len(d.From) > 0 && all[0].name == d.From[0].Name
	}
	return true
}

// DescribeCluster describes what was set for all brokers.
func (b *Broker) DescribeCluster(names []string) []Entry {
	var entries []Entry
	for _, e := range b.Values().Describe(names) {
		value, ok := b.cluster[e.Def.Name]
		if !ok {
			continue
		}
		entries = append(entries, Entry{Def: e.Def, Value: &value, Source: SourceDefaultBroker,
			Synonyms: []Synonym{{e.Def.Name, value, SourceDefaultBroker}}})
	}
	return entries
}

// DescribeClientMetrics describes a subscription with what was set for it.
func DescribeClientMetrics(set map[string]string, names []string) []Entry {
	v := Values{ClientMetrics, func(d *Def) []found {
		var all []found
		if value, ok := set[d.Name]; ok {
			all = append(all, found{d.Name, value, SourceClientMetrics, 1})
		}
		return append(all, found{d.Name, d.Default, SourceDefault, 1})
	}}
	entries := v.Describe(names)
	for i := range entries {
		if entries[i].Source == SourceDefault {
			entries[i].Synonyms = nil
		} else {
			entries[i].Synonyms = entries[i].Synonyms[:1]
		}
	}
	return entries
}
