package record

import "encoding/binary"

// Fixed encodes a number in eight bytes, whose order is that of the numbers.
func Fixed(n uint64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	return string(b[:])
}

// ReadFixed decodes the result of Fixed at the start of s, which must be long
// enough.
func ReadFixed(s string) uint64 { return binary.BigEndian.Uint64([]byte(s[:8])) }
