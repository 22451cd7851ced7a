package server

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/server/fair"
)

// TestLimitsOfThePageAreThoseOfTheDaemon, where files are not scarce.
func TestLimitsOfThePageAreThoseOfTheDaemon(t *testing.T) {
	d := Transport{MaxConns: 4096, HTTPConns: 8192}.withDefaults()
	mib := func(n int) string { return fmt.Sprintf("%d MiB", n>>20) }
	page, err := os.ReadFile("../../book/src/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "| of the daemon | limit |\n|---|---|\n")
	text, _, _ = strings.Cut(text, "\n\n")
	want := map[string]string{
		"connections to the socket":                          fmt.Sprint(d.MaxConns),
		"connections to the socket of one process":           fmt.Sprint(d.ProcessConns),
		"connections to the socket of one actor":             fmt.Sprint(d.ActorConns),
		"HTTP sessions":                                      fmt.Sprint(d.HTTPSessions),
		"HTTP sessions of one actor":                         fmt.Sprint(d.ActorHTTPSessions),
		"streams of one HTTP session":                        fmt.Sprint(maxStreams),
		"HTTP connections":                                   fmt.Sprint(d.HTTPConns),
		"HTTP connections of one actor":                      fmt.Sprint(d.ActorHTTPConns),
		"HTTP connections that have shown no token":          fmt.Sprint(d.HTTPStrangers),
		"calls of one connection that wait":                  fmt.Sprint(maxWaits),
		"calls of one actor that wait":                       fmt.Sprint(fair.MaxActorWaits),
		"calls that wait":                                    fmt.Sprint(fair.MaxWaits),
		"calls of one HTTP session that do not wait":         fmt.Sprint(maxCalls),
		"calls of one actor that run at once":                fmt.Sprint(fair.MaxTurns),
		"messages of the calls under way, of one connection": mib(maxCallBytes),
		"messages of all calls under way":                    mib(fair.MaxArrived),
		"messages of the waiting calls of one actor":         mib(fair.MaxActorArrivedWaits),
		"messages of all waiting calls":                      mib(fair.MaxArrivedWaits),
		"messages over 64 KiB of one actor that arrive":      fmt.Sprint(fair.MaxActorArriving),
		"messages over 64 KiB that arrive":                   fmt.Sprint(fair.MaxArriving),
		"answers that a client has not read":                 mib(fair.MaxClientUnread),
		"answers that no client has read":                    mib(fair.MaxUnread),
		"notifications that a client has not read":           fmt.Sprint(maxNotices),
		"resources that one client subscribes to":            fmt.Sprint(maxSubscriptions),
	}
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
		if len(cells) != 2 || want[cells[0]] != cells[1] {
			t.Errorf("the page says %q, the daemon %q", line, want[cells[0]])
		}
		delete(want, cells[0])
	}
	for what := range want {
		t.Errorf("the page does not have %q", what)
	}
}
