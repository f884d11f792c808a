package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the project's folder.
const root = "../.."

// A source is one Go file of the project.
type source struct {
	path  string // from the project's folder, with slashes
	file  *ast.File
	lines int
}

func (s source) dir() string        { return filepath.ToSlash(filepath.Dir(s.path)) }
func (s source) isTest() bool       { return strings.HasSuffix(s.path, "_test.go") }
func (s source) in(dir string) bool { return strings.HasPrefix(s.path, dir+"/") }

// files lists the project's files with one of the endings, without what is built or
// hidden.
func files(t *testing.T, endings ...string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata" || name == "lacuna-data") {
				return fs.SkipDir
			}
			return nil
		}
		for _, e := range endings {
			if strings.HasSuffix(name, e) {
				rel, err := filepath.Rel(root, path)
				if err != nil {
					return err
				}
				found = append(found, filepath.ToSlash(rel))
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, found)
	return found
}

// parsed is the positions of all sources.
var parsed = token.NewFileSet()

// sources parses the project's Go files.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	for _, path := range files(t, ".go") {
		text, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		file, err := parser.ParseFile(parsed, path, text, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		all = append(all, source{path: path, file: file, lines: strings.Count(string(text), "\n")})
	}
	return all
}
