// Package record encodes and decodes the fields of a row's value: small
// integers in few bytes, strings with their length first, ids unchanged. Its
// users choose the fields and their order, and begin each value with a format
// number.
package record

import (
	"encoding/binary"
	"time"
	"unsafe"

	"github.com/google/uuid"
)

// A Writer builds a value.
type Writer struct{ b []byte }

// New returns a Writer for a value of about size bytes.
func New(size int) *Writer { return &Writer{make([]byte, 0, size)} }

func (w *Writer) Byte(v byte)              { w.b = append(w.b, v) }
func (w *Writer) Int(v int64)              { w.Uint(uint64(v)<<1 ^ uint64(v>>63)) }
func (w *Writer) ID(v uuid.UUID)           { w.b = append(w.b, v[:]...) }
func (w *Writer) Text(v string)            { w.Uint(uint64(len(v))); w.b = append(w.b, v...) }
func (w *Writer) Bytes(v []byte)           { w.Uint(uint64(len(v))); w.b = append(w.b, v...) } // read with Reader.Text
func (w *Writer) Fixed(v uint64)           { w.b = binary.BigEndian.AppendUint64(w.b, v) }
func (w *Writer) Duration(v time.Duration) { w.Int(int64(v)) }
func (w *Writer) Rest(v string)            { w.b = append(w.b, v...) } // must be the last field

// Texts writes several texts.
func (w *Writer) Texts(list ...string) {
	for _, v := range list {
		w.Text(v)
	}
}

// Uint writes a number in groups of seven bits. Most numbers need only one.
func (w *Writer) Uint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }

// Len is the current length of the value.
func (w *Writer) Len() int { return len(w.b) }

// String returns the value. Nothing may be written afterwards.
func (w *Writer) String() string { return unsafe.String(unsafe.SliceData(w.b), len(w.b)) }

// Flags writes up to eight booleans as one byte.
func (w *Writer) Flags(flags ...bool) {
	var b byte
	for i, flag := range flags {
		if flag {
			b |= 1 << i
		}
	}
	w.Byte(b)
}

// Time writes an instant. The zero Time takes one byte.
func (w *Writer) Time(v time.Time) {
	if v.IsZero() {
		w.Int(0)
		return
	}
	w.Int(v.UnixNano())
}

// A Reader takes fields from the front of a value. After a missing field it
// returns zeros, and Done returns false.
type Reader struct {
	s   string
	bad bool
}

// Read returns a Reader for a value.
func Read(value string) Reader { return Reader{s: value} }

// Done reports whether all fields that were read existed, and none are left.
func (r *Reader) Done() bool { return !r.bad && r.s == "" }

func (r *Reader) Byte() byte {
	if s := r.take(1); s != "" {
		return s[0]
	}
	return 0
}

// Uint reads what Writer.Uint wrote.
func (r *Reader) Uint() uint64 {
	v, n := binary.Uvarint([]byte(r.s[:min(len(r.s), binary.MaxVarintLen64)]))
	if n <= 0 {
		r.fail()
		return 0
	}
	r.s = r.s[n:]
	return v
}

// Int reads what Writer.Int wrote.
func (r *Reader) Int() int64 {
	u := r.Uint()
	return int64(u>>1) ^ -int64(u&1)
}

func (r *Reader) ID() (id uuid.UUID) {
	copy(id[:], r.take(len(id)))
	return id
}

func (r *Reader) Text() string {
	n := r.Uint()
	if n > uint64(len(r.s)) {
		r.fail()
		return ""
	}
	return r.take(int(n))
}

func (r *Reader) Time() time.Time {
	if ns := r.Int(); ns != 0 {
		return time.Unix(0, ns).UTC()
	}
	return time.Time{}
}

func (r *Reader) Duration() time.Duration { return time.Duration(r.Int()) }

// Rest returns everything that is left.
func (r *Reader) Rest() string { return r.take(len(r.s)) }

// Flags reads what Writer.Flags wrote.
func (r *Reader) Flags(flags ...*bool) {
	b := r.Byte()
	for i, flag := range flags {
		*flag = b&(1<<i) != 0
	}
	if b>>len(flags) != 0 {
		r.fail()
	}
}

func (r *Reader) take(n int) string {
	if n > len(r.s) {
		r.fail()
		return ""
	}
	s := r.s[:n]
	r.s = r.s[n:]
	return s
}

func (r *Reader) fail() { r.s, r.bad = "", true }
