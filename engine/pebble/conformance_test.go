package pebble_test

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/enginetest"
	"github.com/leasehold/leasehold/engine/pebble"
)

// TestInABubble keeps the state on a file system in memory that can crash,
// and loses all that was not synced.
func TestInABubble(t *testing.T) {
	enginetest.Run(t, enginetest.Harness{
		Bubble: true,
		New:    func(t *testing.T) enginetest.State { return crashable(t, vfs.CrashCloneCfg{}) },
	})
}

// TestTornWrites loses half of what was not synced, block by block.
func TestTornWrites(t *testing.T) {
	enginetest.Run(t, enginetest.Harness{
		Bubble: true,
		New: func(t *testing.T) enginetest.State {
			seed := rand.Uint64()
			t.Logf("seed %#x", seed)
			return crashable(t, vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(seed, 0))})
		},
	})
}

// TestOnDisk keeps it on the real one.
func TestOnDisk(t *testing.T) {
	enginetest.Run(t, enginetest.Harness{
		New: func(t *testing.T) enginetest.State {
			dir := t.TempDir()
			return enginetest.State{
				Open: func() (engine.Engine, error) { return open(pebble.Options{Dir: dir, Logf: t.Logf}) },
			}
		},
	})
}

func crashable(t *testing.T, cfg vfs.CrashCloneCfg) enginetest.State {
	fs := vfs.NewCrashableMem()
	all := vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))}
	now := clock.Go()
	return enginetest.State{
		Kill: func() { fs = fs.CrashClone(all) },
		Open: func() (engine.Engine, error) {
			return open(pebble.Options{Dir: "state", FS: fs, Clock: now, Logf: t.Logf})
		},
		Crash: func() { fs, now.Boot = fs.CrashClone(cfg), now.Boot+"+" },
	}
}

// open keeps a nil *Engine from becoming an Engine that is not nil.
func open(o pebble.Options) (engine.Engine, error) {
	e, err := pebble.Open(o)
	if err != nil {
		return nil, err
	}
	return e, nil
}
