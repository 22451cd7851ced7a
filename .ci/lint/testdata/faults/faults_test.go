package faults

import (
	"context"
	"os"
	"testing"
)

func TestContext(t *testing.T) {
	os.Remove("x")
	_, _ = os.MkdirTemp("", "")
	_ = context.Background()
	_ = os.Chdir("x")      // want usetesting
	_ = os.Setenv("X", "") // want usetesting
}
