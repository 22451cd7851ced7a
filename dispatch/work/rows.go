package work

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
)

// A Todo is what the launcher still has to do for a work.
type Todo string

const (
	ToLaunch Todo = "launch"
	ToStop   Todo = "stop"
	Nothing  Todo = "-"
)

const (
	workPrefix       = "work/"
	dispatchedPrefix = "dispatched/"
	unfinishedPrefix = "unfinished/"
	orderPrefix      = engine.Cold + "work/order/"
	resultPrefix     = engine.Cold + "work/result/"
	planPrefix       = engine.Cold + "work/plan/"
)

func workKey(actor uuid.UUID) string         { return workPrefix + string(actor[:]) }
func orderKey(actor uuid.UUID) string        { return orderPrefix + string(actor[:]) }
func resultKey(actor uuid.UUID) string       { return resultPrefix + string(actor[:]) }
func unfinishedKeys(run uuid.UUID) string    { return unfinishedPrefix + string(run[:]) }
func unfinishedKey(run, id uuid.UUID) string { return unfinishedKeys(run) + string(id[:]) }

// Key is the key of a run's [Dispatched], for an [engine.Watch]. The row
// changes with each order, and when the launcher reconnects.
func Key(run string) string { return dispatchedPrefix + run }

// Get returns the work of a launched actor.
func Get(tx engine.Tx, actor uuid.UUID) (Work, bool) { return rows.Get[Work](tx, workKey(actor)) }

// Put stores a work. Use it for changes that do not affect the purse of its
// lead, and [Amend] for the others.
func Put(tx engine.Tx, w Work) { rows.Put(tx, workKey(w.Actor), w, uuid.Nil) }

func putOrder(tx engine.Tx, actor uuid.UUID, o Order) {
	rows.Put(tx, orderKey(actor), o, uuid.Nil)
}

// OrderOf returns the order of an actor, until the actor has ended.
func OrderOf(tx engine.Tx, actor uuid.UUID) (Order, bool) {
	return rows.Get[Order](tx, orderKey(actor))
}

func putUnfinished(tx engine.Tx, run, actor uuid.UUID, todo Todo) {
	tx.Put(engine.Row{Key: unfinishedKey(run, actor), Value: string(todo)})
}

// Unfinished yields the actors of a run whose works are not final, with what
// remains to be done for each.
func Unfinished(tx engine.Tx, run uuid.UUID) iter.Seq2[uuid.UUID, Todo] {
	return func(yield func(uuid.UUID, Todo) bool) {
		prefix := unfinishedKeys(run)
		for row := range tx.Scan(prefix) {
			id, err := uuid.FromBytes([]byte(row.Key[len(prefix):]))
			if err != nil {
				rows.Corrupt(tx, row.Key, err)
				return
			}
			if !yield(id, Todo(row.Value)) {
				return
			}
		}
	}
}

// Result returns what an actor reported, or the end of its output if it
// reported nothing; nil if there is neither. A result that the engine cannot read says so.
func Result(tx engine.Tx, actor uuid.UUID) json.RawMessage {
	row, ok, err := tx.Try(resultKey(actor))
	if errors.Is(err, engine.ErrCorrupt) {
		return json.RawMessage(`"This result cannot be read: its record is damaged."`)
	}
	if !ok {
		return nil
	}
	return json.RawMessage(row.Value)
}

// PutResult stores the report of an actor, which is JSON.
func PutResult(tx engine.Tx, actor uuid.UUID, result string) {
	tx.Put(engine.Row{Key: resultKey(actor), Value: result})
}

// PutPlan keeps what the dispatcher of a run tells the launchers of other machines.
func PutPlan(tx engine.Tx, run, plan string) {
	if plan == "" {
		tx.Delete(planPrefix + run)
		return
	}
	tx.Put(engine.Row{Key: planPrefix + run, Value: plan})
}

// Plan is what the dispatcher of a run tells other launchers; "" if there is none.
func Plan(tx engine.Tx, run string) string {
	row, _ := tx.Get(planPrefix + run)
	return row.Value
}

// drop removes all rows of an actor's work.
func drop(tx engine.Tx, actor uuid.UUID) {
	tx.Delete(workKey(actor))
	tx.Delete(orderKey(actor))
	tx.Delete(resultKey(actor))
}

// Forget drops the work of an actor that has ended, as have all below it, so nothing
// is reserved for it. What was spent on it stays in the purse of its lead.
func Forget(tx engine.Tx, actor uuid.UUID) {
	w, ok := Get(tx, actor)
	drop(tx, actor)
	if lead, alive := Get(tx, w.Lead); ok && alive {
		lead.Forgotten += w.Settled()
		Put(tx, lead)
	}
}

// DropRun removes what is kept of a run, whose works are dropped one by one.
func DropRun(tx engine.Tx, run string) {
	tx.Delete(Key(run))
	PutPlan(tx, run, "")
}

// CheckRecords returns an error if a record cannot be read.
func CheckRecords(tx engine.Tx) error {
	return cmp.Or(
		rows.Check[Dispatched](tx, dispatchedPrefix),
		rows.Check[Work](tx, workPrefix),
		checkUnfinished(tx),
	)
}

func checkUnfinished(tx engine.Tx) error {
	for row := range tx.Scan(unfinishedPrefix) {
		if len(row.Key) != len(unfinishedPrefix)+32 {
			return fmt.Errorf("%w: %q: names no run and actor", engine.ErrCorrupt, row.Key)
		}
	}
	return nil
}

// All yields every work.
func All(tx engine.Tx) iter.Seq[Work] {
	return func(yield func(Work) bool) {
		for row := range tx.Scan(workPrefix) {
			if w, ok := rows.Decode[Work](tx, row); ok && !yield(w) {
				return
			}
		}
	}
}

// Runs yields the runs whose actors are launched, by name.
func Runs(tx engine.Tx) iter.Seq2[string, Dispatched] {
	return func(yield func(string, Dispatched) bool) {
		for row := range tx.Scan(dispatchedPrefix) {
			if d, ok := rows.Decode[Dispatched](tx, row); ok && !yield(row.Key[len(dispatchedPrefix):], d) {
				return
			}
		}
	}
}
