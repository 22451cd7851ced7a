package pebble

import (
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine"
)

const (
	memtableSize = 32 << 20
	memtables    = 4       // at most, until writers wait
	logStep      = 8 << 20 // by which a log grows

	// cacheSize is for the blocks of tables, where cold rows are, and for the
	// memtables: Pebble takes off the cache what those have, and one that is no
	// larger keeps no block.
	cacheSize = 64<<20 + memtables*memtableSize
)

// Open opens the state in o.Dir, or makes one. It answers [engine.ErrLocked]
// when another process, or this one, has it open, and [engine.ErrCorrupt] when
// it holds a record that cannot be read.
func Open(o Options) (*Engine, error) {
	if o.Dir == "" {
		return nil, errors.New("engine: no directory to open")
	}
	fs := o.FS
	if fs == nil {
		fs = vfs.Default
		if err := os.MkdirAll(o.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("engine: %w", err)
		}
	}
	e := &Engine{logf: o.Logf, clock: newClock(), mem: newMemory(), recent: newRecent(), wakeCollector: func() {}}
	e.fs = &stateFS{FS: fs, dir: o.Dir, fail: e.fail, failed: e.failed}
	if e.logf == nil {
		e.logf = func(string, ...any) {}
	}
	options := e.options()
	options.Cache = pebble.NewCache(cacheSize)
	defer options.Cache.Unref()
	db, err := openPebble(o.Dir, options)
	if err != nil {
		if errors.Is(err, engine.ErrLocked) {
			return nil, err
		}
		return nil, fmt.Errorf("engine: open %s: %w", o.Dir, err)
	}
	e.db = db
	e.fs.opened.Store(true)
	if err := e.recover(options.Cache); err != nil {
		return nil, errors.Join(fmt.Errorf("%w, in %s", err, o.Dir), db.Close())
	}
	if err := e.failed(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// openPebble gives as an error what Pebble panics with, at some failures of
// the disk. It has let go of all it held by then.
func openPebble(dir string, o *pebble.Options) (db *pebble.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			cause, ok := r.(error)
			if !ok {
				cause = fmt.Errorf("%v", r)
			}
			err = cause
		}
	}()
	return pebble.Open(dir, o)
}

// options are Pebble's, for what they are to differ in. The package's
// documentation says what was measured.
func (e *Engine) options() *pebble.Options {
	o := &pebble.Options{
		FS:                          e.fs,
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                memtableSize,
		MemTableStopWritesThreshold: memtables,
		Logger:                      logger{e},
		EventListener: &pebble.EventListener{
			// A store that cannot flush will stall the next writer, who
			// holds the lock, for good. It is better to say so at once.
			BackgroundError: e.fail,
			// Whoever reads it is told, be it Open, a transaction or, in the
			// background, a compaction: all but the second end there.
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				e.logf("engine: corruption: %v", info)
			},
		},
	}
	o.Experimental.TombstoneDenseCompactionThreshold = -1 // never
	o.Levels[0].FilterPolicy = bloom.FilterPolicy(10)     // and so the others
	return o
}

// A logger hears what Pebble has to say. Its Fatalf returns, so Pebble goes on
// after what it takes for its end, and dreams from there on.
type logger struct{ e *Engine }

func (l logger) Infof(string, ...any) {}

func (l logger) Errorf(format string, args ...any) { l.e.logf("pebble: "+format, args...) }

func (l logger) Fatalf(format string, args ...any) { l.e.fail(fmt.Errorf(format, args...)) }
