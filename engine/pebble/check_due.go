package pebble

import (
	"errors"
	"fmt"
)

// checkDue proves that each row has the place in m.due that it should have.
func (m *memory) checkDue(now int64) error {
	d := &m.due
	d.fill(now)
	errs := d.checkFront()
	indexed := d.front.n
	for anchor := range d.rings.all {
		n, faults := d.checkRing(anchor)
		indexed += n
		errs = append(errs, faults...)
	}
	n := 0
	for r := range m.rows.all {
		if r.due != never {
			n++
		} else if r.right != nil {
			errs = append(errs, fmt.Errorf("row %q is due never, and in a ring", r.key()))
		}
	}
	if n != indexed {
		errs = append(errs, fmt.Errorf("%d rows are due ever, and %d indexed", n, indexed))
	}
	return errors.Join(errs...)
}

func (d *dueOrder) checkFront() (errs []error) {
	var last *row
	for at := range d.front.all {
		r := at.r
		if at.due != r.due {
			errs = append(errs, fmt.Errorf("row %q is due at %d, and by the index at %d", r.key(), r.due, at.due))
		}
		if last != nil && compareDue(dueRow{last.due, last}, at) >= 0 {
			errs = append(errs, fmt.Errorf("row %q is due after row %q, by the index", r.key(), last.key()))
		}
		if r.due >= d.horizon || r.left != nil || r.right != nil {
			errs = append(errs, fmt.Errorf("row %q is in front and in a ring, or should be", r.key()))
		}
		errs = append(errs, d.checkLives(r)...)
		last = r
	}
	return errs
}

func (d *dueOrder) checkRing(anchor *row) (n int, errs []error) {
	for r := anchor.right; r != anchor; r = r.right {
		if r.left.right != r || r.right.left != r {
			errs = append(errs, fmt.Errorf("row %q is badly linked in its ring", r.key()))
		}
		if ringOf(r.due) != anchor.due {
			errs = append(errs, fmt.Errorf("row %q is due at %d, and in the ring of %d", r.key(), r.due, anchor.due))
		}
		errs = append(errs, d.checkLives(r)...)
		n++
	}
	if n == 0 {
		errs = append(errs, fmt.Errorf("the ring of %d is empty", anchor.due))
	}
	if first, _ := d.rings.min(); anchor != first && anchor.due < d.horizon {
		errs = append(errs, fmt.Errorf("the ring of %d is before the horizon %d", anchor.due, d.horizon))
	}
	return n, errs
}

func (d *dueOrder) checkLives(r *row) []error {
	if l, i := d.rows.seek(r.key()); i == l.n || l.items[i] != r {
		return []error{fmt.Errorf("row %q is due and gone", r.key())}
	}
	return nil
}
