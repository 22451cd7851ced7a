package pebble

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

// TestTheDueOrderAgreesWithASortedSlice inserts, moves and removes rows while
// time goes on, and draws rings a few rows at a time. The model is the rows, which
// it sorts by due and key whenever it asks what is due.
func TestTheDueOrderAgreesWithASortedSlice(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	m := newMemory()
	model := make(map[string]*row)
	now := time.Now().UnixNano()
	instant := now + int64(time.Minute) // at which very many are due
	someDue := func() int64 {
		switch rnd.IntN(8) {
		case 0:
			return never
		case 1:
			return now + rnd.Int64N(int64(24*time.Hour))
		case 2:
			return now - rnd.Int64N(int64(time.Second)) // late, of the ring that is drawn perhaps
		case 3:
			return []int64{math.MinInt64, 0, never - 1}[rnd.IntN(3)]
		case 4, 5:
			return now + rnd.Int64N(5*ringWidth)
		default:
			return max(instant, now)
		}
	}
	for step := range 30_000 {
		key := fmt.Sprint(rnd.IntN(6000))
		r := model[key]
		switch {
		case r == nil:
			r = &row{due: someDue()}
			r.setText(key, len(key))
			m.insert(r, uuid.Nil)
			model[key] = r
		case rnd.IntN(4) == 0:
			m.remove(r)
			delete(model, key)
		default:
			m.setDue(r, someDue())
		}
		if step%10 == 0 {
			now += rnd.Int64N(int64(100 * time.Millisecond))
			most := rnd.IntN(50)
			was := m.due.front
			n := 0
			if was != nil {
				n = was.n
			}
			m.due.draw(now+drawAhead, most)
			if was != nil && m.due.front.n > n+most {
				t.Fatalf("%d rows are drawn, and %d were to be", m.due.front.n-n, most)
			}
		}
		if step%3000 == 0 {
			m.due.refill()
		}
		if step%100 == 0 {
			agree(t, m, model, now)
		}
	}
	m.due.draw(math.MaxInt64-ringWidth, math.MaxInt)
	agree(t, m, model, never-1)
	for _, r := range model {
		m.remove(r)
	}
	agree(t, m, nil, never-1)
	if first, draw := m.due.first(), m.due.nextDraw(); first != never || draw != never {
		t.Errorf("first %d, next to draw %d, of none", first, draw)
	}
}

func agree(t *testing.T, m *memory, model map[string]*row, now int64) {
	t.Helper()
	if err := m.checkDue(now); err != nil {
		t.Fatal(err)
	}
	first := int64(never)
	for _, r := range model {
		first = min(first, r.due)
	}
	if wake := min(m.due.first(), m.due.nextDraw()); wake > first {
		t.Fatalf("the first is due at %d, and nobody would look before %d", first, wake)
	}
	want := slices.SortedFunc(maps.Values(model), func(a, b *row) int { return compareDue(dueRow{a.due, a}, dueRow{b.due, b}) })
	for r := range func(yield func(*row) bool) { m.due.before(now, yield) } {
		if len(want) == 0 || want[0] != r {
			t.Fatalf("row %q is due, and another is to be", r.key())
		}
		want = want[1:]
	}
	if len(want) > 0 && want[0].due < now {
		t.Fatalf("row %q is due, and not met", want[0].key())
	}
}
