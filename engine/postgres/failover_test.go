package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/postgres"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

const failoverWriters = 8

// Writers write numbers, each its own two rows in one transaction, until an error or
// stop. What was acknowledged to each is known.
type writers struct {
	eng   *postgres.Engine
	acked [failoverWriters]atomic.Int64
	stop  chan struct{}
	wg    sync.WaitGroup
	errs  [failoverWriters]error
}

func write(eng *postgres.Engine) *writers {
	w := &writers{eng: eng, stop: make(chan struct{})}
	for i := range failoverWriters {
		w.wg.Go(func() {
			for n := int64(1); ; n++ {
				select {
				case <-w.stop:
					return
				default:
				}
				err := eng.Update(context.Background(), func(tx engine.Tx) error {
					for _, side := range []string{"left", "right"} {
						tx.Put(engine.Row{Key: fmt.Sprintf("%s/%d", side, i), Value: strconv.FormatInt(n, 10)})
					}
					return nil
				})
				if err != nil {
					w.errs[i] = err
					return
				}
				w.acked[i].Store(n)
			}
		})
	}
	return w
}

// more waits until each writer has had so many more acknowledged, or has failed.
func (w *writers) more(n int64) {
	var from [failoverWriters]int64
	for i := range from {
		from[i] = w.acked[i].Load()
	}
	ended := make(chan struct{})
	go func() { w.wg.Wait(); close(ended) }()
	for i := range from {
		for w.acked[i].Load() < from[i]+n {
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}
}

func (w *writers) end() {
	close(w.stop)
	w.wg.Wait()
}

// found reads what is there of each writer, and fails if a transaction is there in part.
func found(t *testing.T, eng *postgres.Engine) (list [failoverWriters]int64) {
	t.Helper()
	if err := eng.View(context.Background(), func(tx engine.Tx) error {
		for i := range list {
			left, _ := tx.Get(fmt.Sprint("left/", i))
			right, _ := tx.Get(fmt.Sprint("right/", i))
			if left.Value != right.Value {
				t.Errorf("of writer %d, %s and %s are there", i, left.Value, right.Value)
			}
			list[i], _ = strconv.ParseInt(left.Value, 10, 64)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return list
}

func failoverOptions(g *postgrestest.Group, singleNode bool) postgres.Options {
	return postgres.Options{DSN: g.DSN(), SingleNode: singleNode, Patience: time.Minute}
}

// TestFailOverLosesNothing where a standby has what was acknowledged: the engine goes on
// with the new primary, and so does one that opens the state later.
func TestFailOverLosesNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("this starts three databases")
	}
	g := postgrestest.StartGroup(t, true)
	eng, err := postgres.Open(t.Context(), failoverOptions(g, false))
	if err != nil {
		t.Fatal(err)
	}
	w := write(eng)
	w.more(50)
	began := time.Now()
	g.FailOver(t)
	w.more(1)
	t.Logf("each writer had an answer again %v after the primary was killed", time.Since(began).Round(time.Millisecond))
	w.more(50)
	w.end()
	for i, err := range w.errs {
		if err != nil {
			t.Errorf("writer %d: %v", i, err)
		}
	}
	floor := eng.Floor()
	if err := eng.Close(); err != nil {
		t.Error(err)
	}
	again, err := postgres.Open(t.Context(), failoverOptions(g, false))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for i, n := range found(t, again) {
		if acked := w.acked[i].Load(); n < acked {
			t.Errorf("writer %d was acknowledged %d, and %d is there", i, acked, n)
		}
	}
	if again.Floor() <= floor {
		t.Errorf("tokens begin above %d, and did so above %d before", again.Floor(), floor)
	}
	if _, noted, err := again.Get(t.Context(), engine.CopyKey); noted || err != nil {
		t.Errorf("agents are told of a loss: %v", err)
	}
}

// TestASwitchOverLeavesThePrimaryBefore, also where that still runs and only refuses to be
// written: an engine that goes on, and one that takes the lead later, over connections that
// were made before. Those that would be refused may have ended.
func TestASwitchOverLeavesThePrimaryBefore(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("this starts three databases")
	}
	for name, ended := range map[string]string{
		"its connections last":             "false",
		"those that do not read are ended": "query NOT LIKE 'SELECT value FROM leasehold_record%'",
	} {
		t.Run(name, func(t *testing.T) { leavesThePrimaryBefore(t, ended) })
	}
}

// leavesThePrimaryBefore makes a switch-over that ends connections to the primary before.
func leavesThePrimaryBefore(t *testing.T, ended string) {
	t.Helper()
	g := postgrestest.StartGroup(t, true)
	o := failoverOptions(g, false)
	o.Partition, o.FoldSize = 1, 1
	later := o
	for _, o := range []*postgres.Options{&o, &later} {
		conns, err := postgres.Connect(t.Context(), *o)
		if err != nil {
			t.Fatal(err)
		}
		defer conns.Close()
		o.Connections = conns
	}
	// set writes a cold row, too long to be cached, and waits until that is in the records
	// and no longer in memory.
	set := func(e *postgres.Engine, value string) {
		t.Helper()
		for _, key := range []string{engine.Cold + "row", "next"} {
			for ok := false; !ok; ok = query[bool](t, g.DSN(), "SELECT count(*) > 0 FROM leasehold_record WHERE position($1::bytea in key) > 0 AND position($2::bytea in value) > 0",
				[]byte(strings.TrimPrefix(key, engine.Cold)), []byte(value)) {
				// Nothing is written to the records while the fold before is not over.
				if err := e.Update(t.Context(), func(tx engine.Tx) error {
					tx.Put(engine.Row{Key: key, Value: value + strings.Repeat(" ", 300)})
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	get := func(e *postgres.Engine) (value string) {
		t.Helper()
		if err := e.View(t.Context(), func(tx engine.Tx) error {
			row, _ := tx.Get(engine.Cold + "row")
			value = strings.TrimSpace(row.Value)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return value
	}
	// Each has connections to the first primary.
	second, err := postgres.Open(t.Context(), later)
	if err != nil {
		t.Fatal(err)
	}
	set(second, "first")
	get(second)
	_ = second.Close() // nothing is in progress
	first, err := postgres.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	set(first, "still first")
	get(first)

	before := "host=" + g.Directory() + " user=test dbname=postgres"
	g.SwitchOver(t)
	postgrestest.Exec(t, before, terminate+" AND backend_type = 'client backend' AND "+ended)
	set(first, "second")
	if got := get(first); got != "second" {
		t.Errorf("who went on reads %q", got)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if second, err = postgres.Open(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if got := get(second); got != "second" {
		t.Errorf("who took the lead later reads %q", got)
	}
	set(second, "third")
	for deadline := time.Now().Add(time.Minute); others(t, before, "true") > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("there are connections to the primary before")
		}
	}
}

// TestAnAsynchronousFailOverIsNoticed: the engine whose commits were lost fails instead
// of going on, the next one begins with what is there, and tokens rise all the same.
func TestAnAsynchronousFailOverIsNoticed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("this starts three databases")
	}
	g := postgrestest.StartGroup(t, false)
	if _, err := postgres.Open(t.Context(), failoverOptions(g, false)); !errors.Is(err, postgres.ErrNotReplicated) {
		t.Fatalf("it opens without asking: %v", err)
	}
	eng, err := postgres.Open(t.Context(), failoverOptions(g, true))
	if err != nil {
		t.Fatal(err)
	}
	w := write(eng)
	w.more(20)
	g.Detach(t)
	w.more(20)
	g.FailOver(t)
	w.wg.Wait()
	for i, err := range w.errs {
		if !errors.Is(err, engine.ErrFailed) || !errors.Is(err, postgres.ErrLost) {
			t.Errorf("writer %d ended with %v", i, err)
		}
	}
	floor := eng.Floor()
	_ = eng.Close() // it has failed
	again, err := postgres.Open(t.Context(), failoverOptions(g, true))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	lost := int64(0)
	for i, n := range found(t, again) {
		lost += max(0, w.acked[i].Load()-n)
	}
	t.Logf("%d transactions were acknowledged and lost", lost)
	if lost == 0 {
		t.Error("nothing was lost, so nothing was tried")
	}
	if again.Floor() < floor+1024<<28 {
		t.Errorf("tokens begin above %d, and did so above %d before", again.Floor(), floor)
	}
	if _, noted, err := again.Get(t.Context(), engine.CopyKey); !noted || err != nil {
		t.Errorf("agents are not told: %v", err)
	}
}
