package server

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

// A read that turns out to be long makes room for short ones, and waits for those
// that are long; the next begins when others had the processor for a while.
func TestLongReadsWaitForLongReadsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s shares
		s.init(Transport{ActorConns: 9})
		begin := func() *turn {
			sh, err := s.take(uuid.New(), socketConn)
			if err != nil {
				t.Fatal(err)
			}
			_, turn, err := sh.turn(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			if err := turn.Begin(); err != nil {
				t.Fatal(err)
			}
			return turn
		}
		for range longTurns() {
			long := begin()
			if err := long.Long(); err != nil {
				t.Fatal(err)
			}
			long.End()
			time.AfterFunc(time.Second, long.end)
		}
		begin().End() // a short one
		start := time.Now()
		second := begin()
		if err := second.Long(); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited != time.Second+maxRest {
			t.Errorf("a second long read waited for %v", waited)
		}
		second.End()
		second.end()
		synctest.Wait()
	})
}
