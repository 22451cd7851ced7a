package work

import (
	"fmt"
	"math"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// Money is an amount in millionths of a US dollar.
type Money int64

// USD makes Money of dollars, at most a million of millions.
func USD(dollars float64) Money {
	return Money(math.Round(max(-1e12, min(dollars, 1e12)) * 1e6))
}

// USD is the amount in dollars.
func (m Money) USD() float64 { return float64(m) / 1e6 }

// A Purse is what an actor may spend and has spent.
//
// What a lead gives to a child is reserved from what it has, and taken back at
// the child's end less what the child and all below it have spent. A child
// without a budget of its own draws on its lead's. Two sums hold at all times,
// over the children of a lead in this run:
//
//	Reserved = Σ claim    what may yet be spent
//	Below    = Σ settled  what is known to be spent, and Forgotten
type Purse struct {
	Budget    Money // zero: none of its own
	Base      Money // spent, with all below it, before it was ordered anew
	Spent     Money // by itself, as its agent reports
	Below     Money
	Reserved  Money
	Forgotten Money `json:",omitempty"` // of Below, for children whose records are gone
	Reported  bool  // its agent has reported a cost
}

// Total is what the actor and all below it are known to have spent.
func (p Purse) Total() Money { return p.Spent + p.Below }

// Claim is what the actor's lead keeps for it. One that has ended may leave
// descendants that have yet to.
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

// Settled is what the actor's lead has paid for it.
func (w Work) Settled() Money {
	if w.Status.Final() {
		return w.Total()
	}
	return w.Base
}

// Amend changes a work, and with it what its leads keep and have paid.
func Amend(tx engine.Tx, actor uuid.UUID, change func(*Work)) Work {
	w, _ := Get(tx, actor)
	claim, settled := w.Claim(), w.Settled()
	if w.Actor == uuid.Nil {
		claim, settled = 0, 0 // it comes to be
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

// available is what a lead may yet give away; limited is false where nobody
// above it has a budget.
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

// Afford refuses, with a [BudgetError], what the lead at path, whose work is w,
// cannot give to a child.
func Afford(tx engine.Tx, path string, w Work, budget Money) error {
	left, limited := available(tx, w)
	if limited && (left <= 0 || budget > left) {
		return &BudgetError{Lead: path, Available: max(left, 0)}
	}
	return nil
}

// A BudgetError says that a lead has not as much left as it was to give.
// Nothing was changed.
type BudgetError struct {
	Lead      string // its path
	Available Money
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("limit reached: budget_usd, at most %.6g: that is what %s has left; wait for others to end, which gives back what they did not spend, or do without",
		e.Available.USD(), e.Lead)
}
