package tidy

import (
	"go/ast"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	handlerFile    = regexp.MustCompile(`^broker/(\d\d)_([a-z_]+)\.go$`)
	handlerComment = regexp.MustCompile(`^(\w+) \((\d+)\), versions? (\d+)(?: to (\d+))?\b`)
)

// TestHandlersAreNamedAfterTheirAPI holds that broker/NN_name.go serves the API with key
// NN and that name, and that its comment tells the versions that the table of APIs serves.
func TestHandlersAreNamedAfterTheirAPI(t *testing.T) {
	all := sources(t)
	served := servedVersions(t, all)
	handlers := 0
	for _, s := range all {
		m := handlerFile.FindStringSubmatch(s.path)
		if m == nil || s.isTest() {
			continue
		}
		handlers++
		key, err := strconv.ParseInt(m[1], 10, 16)
		require.NoError(t, err)
		api := kmsg.NameForKey(int16(key))
		assert.Equal(t, snake(api), m[2], "%s: key %d is %s", s.path, key, api)

		handler, comment := handlerOf(s)
		if !assert.NotNil(t, handler, `%s: no function has a comment "%s (%d), versions A to B"`, s.path, api, key) {
			continue
		}
		last := comment[4]
		if last == "" {
			last = comment[3]
		}
		// kmsg writes ID, Kafka Id.
		assert.Equal(t, []string{strings.ToLower(api), strconv.FormatInt(key, 10)},
			[]string{strings.ToLower(comment[1]), comment[2]}, "%s: its comment names another API", s.path)
		assert.Equal(t, served[handler.Name.Name], [2]string{comment[3], last},
			"%s: the comment of %s and the table of APIs disagree about the versions", s.path, handler.Name.Name)
	}
	assert.Len(t, served, handlers, "the table of APIs has other handlers than there are files")
}

// handlerOf finds the function that serves the API of a file, and what its comment says:
// the API, its key, the first and the last version.
func handlerOf(s source) (handler *ast.FuncDecl, comment []string) {
	for _, d := range s.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Doc != nil {
			if m := handlerComment.FindStringSubmatch(f.Doc.Text()); m != nil {
				return f, m
			}
		}
	}
	return nil, nil
}

// servedVersions reads the table of APIs: the first and the last version of each handler,
// from calls such as one(0, 5, (*Broker).syncGroup).
func servedVersions(t *testing.T, all []source) map[string][2]string {
	t.Helper()
	served := map[string][2]string{}
	for _, s := range all {
		if s.path != "broker/apis.go" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 3 {
				return true
			}
			first, ok1 := call.Args[0].(*ast.BasicLit)
			last, ok2 := call.Args[1].(*ast.BasicLit)
			method, ok3 := call.Args[2].(*ast.SelectorExpr)
			if ok1 && ok2 && ok3 {
				served[method.Sel.Name] = [2]string{first.Value, last.Value}
			}
			return true
		})
	}
	require.NotEmpty(t, served, "no table of APIs was found: was broker/apis.go moved?")
	return served
}

// snake writes CamelCase as file names do: InitProducerID is init_producer_id.
func snake(name string) string {
	name = strings.ReplaceAll(name, "ID", "Id")
	name = strings.ReplaceAll(name, "ACL", "Acl")
	var b strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}
