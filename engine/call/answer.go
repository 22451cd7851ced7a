package call

import (
	"strings"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// A Kind identifies the rules that encode an answer's value.
type Kind string

// An Answer records what a call did.
type Answer struct {
	Kind   Kind
	Print  uint64
	Shared bool   // several calls have been told of it
	Value  string // encoded by the rules of Kind
}

// pointer is the kind of the row under the name of a call with a request_id.
// Its value is the key of the answer.
const pointer Kind = "see"

// get reads an answer. One that cannot be read is ignored.
func get(tx engine.Tx, key string) (a Answer, ok bool) {
	row, _ := tx.Get(key)
	r := record.Read(row.Value)
	version := r.Byte()
	r.Flags(&a.Shared)
	a.Kind, a.Print, a.Value = Kind(r.Text()), r.Uint(), r.Rest()
	return a, version == format && r.Done()
}

// Tend deletes an answer that is due. It returns false for a row of another
// package.
func Tend(tx engine.Tx, row engine.Row) bool {
	if !strings.HasPrefix(row.Key, Prefix) {
		return false
	}
	tx.Delete(row.Key)
	return true
}

const format = 1

func (a Answer) encode() string {
	w := record.New(24 + len(a.Kind) + len(a.Value))
	w.Byte(format)
	w.Flags(a.Shared)
	w.Text(string(a.Kind))
	w.Uint(a.Print)
	w.Rest(a.Value)
	return w.String()
}
