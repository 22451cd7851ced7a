package pebble

import (
	"testing"
	"unsafe"
)

func TestARowFillsItsAllocation(t *testing.T) {
	if n := unsafe.Sizeof(row{}); n != 64 {
		t.Errorf("a row has %d bytes", n)
	}
}
