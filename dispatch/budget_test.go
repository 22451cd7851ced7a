package dispatch_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/work"
)

// An account is one actor in a simple model, which adds up the whole tree each
// time it is asked.
type account struct {
	budget   work.Money // zero: it uses its lead's
	spent    work.Money
	ended    bool
	lead     *account
	children []*account
	path     string
	sub      bool
}

// below returns what all actors below it are known to have spent.
func (a *account) below() (sum work.Money) {
	for _, c := range a.children {
		if c.ended {
			sum += c.spent + c.below()
		}
	}
	return sum
}

// claim returns what is reserved for it.
func (a *account) claim() work.Money {
	if a.budget > 0 && !a.ended {
		return a.budget
	}
	sum := a.kept()
	if !a.ended {
		sum += a.spent + a.below()
	}
	return sum
}

func (a *account) kept() (sum work.Money) {
	for _, c := range a.children {
		sum += c.claim()
	}
	return sum
}

// left returns what it may still give away.
func (a *account) left() work.Money {
	if a.budget == 0 {
		return a.lead.left()
	}
	return a.budget - a.spent - a.below() - a.kept()
}

// orphan reports whether an actor above it has ended, so that it must stop.
func (a *account) orphan() bool { return a.lead != nil && (a.lead.ended || a.lead.orphan()) }

// Whatever is spawned and however it ends, no lead gives away more than it has,
// and everything that is not spent comes back. State.Check, which runs at the
// end of each test, compares the stored sums with the tree.
func TestBudgetsAddUp(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		atHome(t, dispatch.Options{}, func(h *house) {
			root := &account{budget: 100, path: "root", sub: true}
			tr := h.dispatch(work.Settings{Limits: work.Limits{BudgetUSD: root.budget.USD(), MaxDepth: 5}})
			tr.start()
			all := []*account{root}
			living := func(only func(*account) bool) (list []*account) {
				for _, a := range all {
					if !a.ended && only(a) {
						list = append(list, a)
					}
				}
				return list
			}
			r.Repeat(map[string]func(*rapid.T){
				"spawn": func(r *rapid.T) {
					leads := living(func(a *account) bool { return a.sub && !a.orphan() })
					if len(leads) == 0 {
						r.Skip("nobody leads")
					}
					lead := leads[rapid.IntRange(0, len(leads)-1).Draw(r, "lead")]
					budget := work.Money(rapid.SampledFrom([]int{0, 0, 1, 5, 20, 60}).Draw(r, "budget"))
					role := rapid.SampledFrom([]dispatch.Role{dispatch.Sublead, dispatch.Worker}).Draw(r, "role")
					left := lead.left()
					made, err := tr.cast[lead.path].Spawn(t.Context(), dispatch.Spawn{Role: role, Prompt: "x", BudgetUSD: new(budget.USD())})
					var over *work.BudgetError
					switch {
					case limit(5)(err): // the depth
					case left <= 0 || budget > left:
						if !errors.As(err, &over) || over.Available != max(left, 0) {
							r.Fatalf("%s has %d left and is to give %d: %v", lead.path, left, budget, err)
						}
					case err != nil:
						r.Fatal(err)
					default:
						child := &account{budget: budget, lead: lead, path: made.Path, sub: role == dispatch.Sublead}
						lead.children = append(lead.children, child)
						all = append(all, child)
						tr.start()
					}
				},
				"exit": func(r *rapid.T) {
					list := living(func(a *account) bool { return a != root })
					if len(list) == 0 {
						r.Skip("nobody is left")
					}
					a := list[rapid.IntRange(0, len(list)-1).Draw(r, "actor")]
					cost := work.Money(rapid.IntRange(0, 30).Draw(r, "cost"))
					info := tr.exit(a.path, work.Exit{Status: work.Failed, Cost: &cost})
					a.spent, a.ended = cost, true
					if info.Work.Total() != cost+a.below() {
						r.Fatalf("%s and all below it have spent %d, told as %d", a.path, cost+a.below(), info.Work.Total())
					}
				},
				"check": func(r *rapid.T) {
					if err := h.Check(t.Context()); err != nil {
						r.Fatal(err)
					}
				},
			})
			for _, a := range living(func(*account) bool { return true }) {
				a.ended = true
				tr.exit(a.path, work.Exit{Status: work.Succeeded})
			}
			info, err := h.FinishRun(t.Context(), tr.op, "r")
			if err != nil {
				r.Fatal(err)
			}
			if got := info.Actors[0].Work; got.Total() != root.below() || got.Reserved != 0 {
				r.Fatalf("at the end %d are spent and %d kept, want %d and none", got.Total(), got.Reserved, root.below())
			}
			h.hangUp(tr.op)
		})
	})
}
