// Package book holds the book, in mdBook's format, and the tests that keep it
// true: every link and every included anchor leads somewhere, every page stands
// in the summary, the texts and codes that it quotes are those of the code, its
// console sessions run, and its generated pages are up to date.
//
// Those pages come from the definitions of the tools and from calls to a real
// daemon. Write them anew with go generate, which is what `just docs` does.
package book

//go:generate go test . -run TestGenerated -update
