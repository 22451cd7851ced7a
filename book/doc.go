// Package book holds the book, in mdBook's format, and the tests that keep it
// true: every link leads somewhere, every page is in the summary, the code that
// pages show is that of its source, the texts and codes that it quotes are those of the code, its
// console sessions run, and its generated pages are up to date.
//
// Those pages come from the definitions of the tools and from calls to a real
// daemon. Write them anew with go generate, which is what `just docs` does.
package book

//go:generate go test . -run TestGenerated|TestCodeInPlace -update
