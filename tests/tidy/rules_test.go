package tidy

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	maxFileLines     = 500
	maxFunctionLines = 70
)

// TestFilesHoldOneIdea bounds the length of files and functions: a longer one does more
// than one thing. Tests may tell a longer story in one function.
func TestFilesHoldOneIdea(t *testing.T) {
	for _, s := range sources(t) {
		assert.LessOrEqual(t, s.lines, maxFileLines, "%s is too long", s.path)
		if s.isTest() {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := parsed.Position(f.End()).Line - parsed.Position(f.Pos()).Line + 1
			assert.LessOrEqual(t, lines, maxFunctionLines, "%s: %s is too long", s.path, f.Name.Name)
		}
	}
}

// TestPackagesSayWhatTheyAreFor wants a comment on each package, in one place.
func TestPackagesSayWhatTheyAreFor(t *testing.T) {
	documented := map[string][]string{}
	for _, s := range sources(t) {
		if strings.HasSuffix(s.file.Name.Name, "_test") {
			continue
		}
		if _, ok := documented[s.dir()]; !ok {
			documented[s.dir()] = nil
		}
		if s.file.Doc != nil {
			documented[s.dir()] = append(documented[s.dir()], s.path)
		}
	}
	for dir, by := range documented {
		assert.Len(t, by, 1, "package %s has a package comment in %d files, not in one", dir, len(by))
	}
}

var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX|HA` + `CK)\b|(?i)not (yet )?implemented`)

// TestNothingIsLeftUnfinished looks for the marks of it.
func TestNothingIsLeftUnfinished(t *testing.T) {
	for _, path := range files(t, ".go", ".sh", ".py", ".md", ".yml", "Makefile") {
		text, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		for i, line := range strings.Split(string(text), "\n") {
			assert.False(t, unfinished.MatchString(line), "%s:%d is unfinished: %s", path, i+1, strings.TrimSpace(line))
		}
	}
}

// purePackages decide; they do not do. What they import and call is held by the linter's
// configuration, the rest of what makes them plain values here.
var purePackages = []string{"protocol", "keyfilter", "individualcommit", "cooperative", "broker/group", "broker/metadata", "broker/share",
	"broker/transaction", "broker/deadline"}

// TestPurePackagesHaveNoConcurrency forbids goroutines, channels and select there.
func TestPurePackagesHaveNoConcurrency(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sources(t) {
		for _, pure := range purePackages {
			if s.isTest() || !s.in(pure) {
				continue
			}
			seen[pure] = true
			ast.Inspect(s.file, func(n ast.Node) bool {
				switch n.(type) {
				case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType, *ast.SendStmt:
					assert.Fail(t, "a pure package has one owner and no goroutine", "%s", parsed.Position(n.Pos()))
				}
				return true
			})
		}
	}
	assert.NotEmpty(t, seen, "no pure package was found: were they renamed?")
}

// TestTestsWaitForTheThingItself forbids tests to sleep, but under testing/synctest, where
// a sleep takes no time and is no guess.
func TestTestsWaitForTheThingItself(t *testing.T) {
	for _, s := range sources(t) {
		if !s.isTest() || imports(s, "testing/synctest") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok && call.Sel.Name == "Sleep" {
				if x, ok := call.X.(*ast.Ident); ok && x.Name == "time" {
					assert.Fail(t, "a test waits for the thing itself, or runs under testing/synctest", "%s", parsed.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

func imports(s source, path string) bool {
	for _, i := range s.file.Imports {
		if i.Path.Value == strconv.Quote(path) {
			return true
		}
	}
	return false
}

var markdownLink = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)

// TestDocumentsPointAtWhatIsThere follows the links between the project's files.
func TestDocumentsPointAtWhatIsThere(t *testing.T) {
	for _, path := range files(t, ".md") {
		text, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		for _, m := range markdownLink.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			_, err := os.Stat(filepath.Join(root, filepath.Dir(path), m[1]))
			assert.NoError(t, err, "%s links to %s", path, m[1])
		}
	}
}
