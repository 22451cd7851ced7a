package server_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch/server"
)

// A daemon is idle once nobody has been connected for a whole period. Each
// connection starts the period again.
func TestIdleIsToHaveNobodyForTheWholeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		began := time.Now()
		idle := make(chan time.Duration, 1)
		go func() {
			if err := d.AwaitIdle(d.ctx, time.Minute); err != nil {
				t.Error(err)
			}
			idle <- time.Since(began)
		}()
		time.Sleep(50 * time.Second)
		p := d.dial(t, "W1")
		time.Sleep(time.Hour)
		synctest.Wait()
		select {
		case at := <-idle:
			t.Fatalf("idle after %v, with somebody there", at)
		default:
		}
		p.nc.Close()
		if at, want := <-idle, 50*time.Second+time.Hour+time.Minute; at != want {
			t.Errorf("idle after %v, want %v", at, want)
		}
	})
}
