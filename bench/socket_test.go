package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"
)

// The server keeps its tools in a private table. This test fails if the table changes so
// that the benchmark's tool no longer fits.
func TestEmptyToolAnswers(t *testing.T) {
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	served := make(chan error, 1)
	go func() { served <- serveLeasehold(ctx, dir, t.Output()) }()
	var c *client
	for c == nil {
		select {
		case err := <-served:
			t.Fatalf("the daemon ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
		c, _ = dial(filepath.Join(dir, socketName), 0)
	}
	defer c.nc.Close()
	if err := c.call("empty", `{}`, nil); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
