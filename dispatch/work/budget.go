package work

import (
	"fmt"
	"math"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// Money is an amount in millionths of a US dollar.
type Money int64

// USD converts an amount in dollars, which is limited to a million million.
func USD(dollars float64) Money {
	return Money(math.Round(max(-1e12, min(dollars, 1e12)) * 1e6))
}

// USD returns the amount in dollars.
func (m Money) USD() float64 { return float64(m) / 1e6 }

// A Purse is an actor's budget and what has been spent of it.
//
// The budget that a lead gives to a child is reserved from the lead's own. When
// the child ends, the unspent part returns to the lead. A child without a
// budget spends from that of its lead. Two sums hold at all times, over the
// children of a lead in this run:
//
//	Reserved = Σ claim    what may yet be spent
//	Below    = Σ settled  what is known to be spent, and Forgotten
type Purse struct {
	Budget    Money // zero: no budget of its own
	Base      Money // spent, with all below it, before its latest order
	Spent     Money // by the actor itself, as its agent reports
	Below     Money
	Reserved  Money
	Forgotten Money `json:",omitempty"` // the part of Below that is due to children whose records are gone
	Reported  bool  // whether its agent has reported a cost
}

// Total is the known spending of the actor and all below it.
func (p Purse) Total() Money { return p.Spent + p.Below }

// Claim is the part of the lead's budget that is reserved for the actor. After
// the actor has ended, that is what its living descendants may still spend.
func (w Work) Claim() Money {
	switch {
	case w.Status.Final():
		return w.Reserved
	case w.Budget > 0:
		return w.Budget
	default:
		return w.Total() - w.Base + w.Reserved
	}
}

// Settled is what the lead has paid for the actor: all of its spending once it
// has ended, and until then the spending before its latest order.
func (w Work) Settled() Money {
	if w.Status.Final() {
		return w.Total()
	}
	return w.Base
}

// Amend changes a work and adjusts Reserved and Below of its leads.
func Amend(tx engine.Tx, actor uuid.UUID, change func(*Work)) Work {
	w, _ := Get(tx, actor)
	claim, settled := w.Claim(), w.Settled()
	if w.Actor == uuid.Nil {
		claim, settled = 0, 0 // the work is new
	}
	change(&w)
	Put(tx, w)
	claim, settled = w.Claim()-claim, w.Settled()-settled
	if w.Lead != uuid.Nil && (claim != 0 || settled != 0) {
		Amend(tx, w.Lead, func(lead *Work) {
			lead.Reserved += claim
			lead.Below += settled
		})
	}
	return w
}

// available returns what a lead can still give to children. limited is false if
// neither it nor any actor above it has a budget.
func available(tx engine.Tx, w Work) (left Money, limited bool) {
	for {
		if w.Budget > 0 {
			return w.Budget - (w.Total() - w.Base) - w.Reserved, true
		}
		lead, ok := Get(tx, w.Lead)
		if !ok {
			return 0, false
		}
		w = lead
	}
}

// Afford returns a [BudgetError] if the lead at path, whose work is w, cannot
// give budget to a child.
func Afford(tx engine.Tx, path string, w Work, budget Money) error {
	left, limited := available(tx, w)
	if limited && (left <= 0 || budget > left) {
		return &BudgetError{Lead: path, Available: max(left, 0)}
	}
	return nil
}

// A BudgetError is returned if a lead has less left than it was asked to give.
// Nothing was changed.
type BudgetError struct {
	Lead      string // its path
	Available Money
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("limit reached: budget_usd, at most %.6g: that is what %s has left; wait for others to end, which gives back what they did not spend, or do without",
		e.Available.USD(), e.Lead)
}
