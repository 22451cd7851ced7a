package pebble

import (
	"testing"
	"unsafe"
)

func TestRowsAndLeavesFillTheirAllocations(t *testing.T) {
	if n := unsafe.Sizeof(row{}); n != 64 {
		t.Errorf("a row has %d bytes", n)
	}
	if n := unsafe.Sizeof(leaf[string, *row]{}); n != 512 {
		t.Errorf("a leaf has %d bytes", n)
	}
}
