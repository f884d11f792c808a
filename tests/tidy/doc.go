// Package tidy holds the rules of the house that a linter does not know, as tests over
// the project's own sources: what a package and a file look like, what the pure packages
// may not do, how handlers are named, and that documents point at what is there.
package tidy
