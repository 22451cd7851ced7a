package record

import "encoding/binary"

// Fixed gives a number in eight bytes, which sort as numbers do.
func Fixed(n uint64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	return string(b[:])
}

// ReadFixed reads what Fixed gave off the front of s, which must have it.
func ReadFixed(s string) uint64 { return binary.BigEndian.Uint64([]byte(s[:8])) }
