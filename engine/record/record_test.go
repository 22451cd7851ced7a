package record_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/leasehold/leasehold/engine/record"
)

func TestWhatWasWrittenIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.Byte().Draw(t, "byte")
		u := rapid.Uint64().Draw(t, "uint")
		i := rapid.Int64().Draw(t, "int")
		id := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		s := rapid.String().Draw(t, "text")
		at := time.Unix(0, rapid.Int64Min(1).Draw(t, "time"))

		w := record.New(0)
		w.Byte(c)
		w.Uint(u)
		w.Int(i)
		w.ID(id)
		w.Text(s)
		w.Time(at)
		w.Time(time.Time{})
		w.Duration(time.Duration(i))
		w.Flags(c&1 != 0, c&2 != 0)
		value := w.String()

		r := record.Read(value)
		if r.Byte() != c || r.Uint() != u || r.Int() != i || r.ID() != id || r.Text() != s || !r.Time().Equal(at) || !r.Time().IsZero() || r.Duration() != time.Duration(i) {
			t.Fatalf("%q is read otherwise", value)
		}
		var one, two bool
		if r.Flags(&one, &two); one != (c&1 != 0) || two != (c&2 != 0) || !r.Done() {
			t.Fatalf("%q is read otherwise at its end", value)
		}

		// A shortened value is never accepted as complete, and neither is a
		// longer one.
		cut := record.Read(value[:rapid.IntRange(0, len(value)-1).Draw(t, "cut")])
		for _, r := range []*record.Reader{&cut, new(record.Read(value + "x"))} {
			r.Byte()
			r.Uint()
			r.Int()
			r.ID()
			r.Text()
			r.Time()
			r.Time()
			r.Duration()
			r.Flags(&one, &two)
			if r.Done() {
				t.Fatalf("%q cut or grown is taken for a whole", value)
			}
		}
	})
}
