package configs

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documentation is where people read of the settings. Its tables are made from ours:
// LACUNA_REWRITE=1 go test ./broker/configs -run Documentation writes them.
const documentation = "../../docs/configuration.md"

func TestDocumentationIsThatOfTheTables(t *testing.T) {
	content, err := os.ReadFile(documentation)
	require.NoError(t, err)
	text := string(content)
	for _, section := range []struct {
		name  string
		table *Table
	}{{"broker", Brokers}, {"topic", Topics}, {"group", Groups}} {
		text = replaceSection(t, text, section.name, markdown(section.table))
	}
	if os.Getenv("LACUNA_REWRITE") != "" {
		require.NoError(t, os.WriteFile(documentation, []byte(text), 0o644))
		return
	}
	require.Equal(t, string(content), text, "docs/configuration.md is out of date; LACUNA_REWRITE=1 go test ./broker/configs writes it anew")
}

// replaceSection puts a table between the marks of its section.
func replaceSection(t *testing.T, text, name, table string) string {
	t.Helper()
	begin, end := fmt.Sprintf("<!-- %s settings -->\n", name), fmt.Sprintf("<!-- end of %s settings -->\n", name)
	before, rest, ok := strings.Cut(text, begin)
	require.True(t, ok, "no %q", begin)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok, "no %q", end)
	return before + begin + table + end + after
}

// markdown is a table of the settings that do something, and a list of the others.
func markdown(table *Table) string {
	var rows, unused []string
	for _, d := range table.All() {
		switch {
		case d.Hidden:
		case d.Unused:
			unused = append(unused, "`"+d.Name+"`")
		default:
			rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", d.Name, shownDefault(d), shownDoc(table, d)))
		}
	}
	text := "\n| setting | default | what it does |\n| --- | --- | --- |\n" + strings.Join(rows, "\n") + "\n"
	if len(unused) > 0 {
		text += "\nChecked, stored and described, without any effect: " + strings.Join(unused, ", ") + ".\n"
	}
	return text + "\n"
}

func shownDefault(d *Def) string {
	switch {
	case d.Null || d.Default == "":
		return ""
	case d.Default == maxLong || d.Default == maxInt:
		return "no bound"
	}
	return "`" + d.Default + "`"
}

func shownDoc(table *Table, d *Def) string {
	doc := strings.ReplaceAll(d.Doc, "|", "\\|")
	if table == Brokers {
		switch d.Scope {
		case Dynamic, PerBroker:
			doc += " *May be changed while the broker runs.*"
		case Derived:
			doc += " *Read-only.*"
		}
	}
	return doc
}
