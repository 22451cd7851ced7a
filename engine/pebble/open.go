package pebble

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/memory"
)

// Options say which state to open, and how.
type Options struct {
	// Dir is the directory of the state. If it does not exist, it is created,
	// accessible to its owner only.
	Dir string
	// Logf receives messages for an operator, such as a failing disk. It may be
	// called from any goroutine. If it is nil, they are discarded.
	Logf func(format string, args ...any)
	// FS is the file system of Dir; nil is the real disk. It is for tests.
	FS vfs.FS
	// Clock is the source of time. The zero value is the machine's clock or,
	// with another FS, Go's.
	Clock clock.Clock
}

func (o Options) withDefaults() Options {
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	switch {
	case o.Clock.Running != nil:
	case o.FS != nil:
		o.Clock = clock.Go()
	default:
		o.Clock = clock.Machine()
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	return o
}

// An Engine is an open state.
type Engine struct {
	*memory.Engine
	store *store
}

var _ engine.Engine = (*Engine)(nil)

// Open opens the state in o.Dir, or creates one. It returns [engine.ErrLocked]
// if another process, or this one, has it open, [engine.ErrCorrupt] if it
// has a record that cannot be read, and [ErrForeign] if the directory is another
// program's.
func Open(o Options) (*Engine, error) {
	if o.Dir == "" {
		return nil, errors.New("engine: no directory to open")
	}
	o = o.withDefaults()
	e := new(Engine)
	var err error
	e.Engine, err = memory.Open(memory.Options{
		Clock: o.Clock,
		Logf:  o.Logf,
		Store: func(fail func(error)) (memory.Store, error) {
			s, err := openStore(o, fail)
			if err != nil {
				return nil, err
			}
			e.store = s
			return s, nil
		},
	})
	switch {
	case err == nil:
		return e, nil
	case errors.Is(err, engine.ErrLocked):
		return nil, err
	}
	return nil, fmt.Errorf("engine: open %s: %w", o.Dir, err)
}

// OpenStore opens the store of a state without an engine, to copy it; see
// [memory.Copy].
func OpenStore(o Options) (memory.Store, error) {
	o = o.withDefaults()
	s, err := openStore(o, func(err error) { o.Logf("engine: %v", err) })
	if err != nil {
		return nil, fmt.Errorf("engine: open %s: %w", o.Dir, err)
	}
	return s, nil
}

// Exists reports whether a directory contains a state. If there is no such directory, it
// contains none. The error says why it could not look; it is [engine.ErrNewer] as of Open.
func Exists(dir string) (bool, error) {
	desc, err := peek(dir, vfs.Default)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	}
	return err == nil && desc.Exists, err
}

// peek finds out what Pebble would open. It changes nothing.
func peek(dir string, disk vfs.FS) (*pebble.DBDesc, error) {
	desc, err := pebble.Peek(dir, disk)
	if err != nil && strings.Contains(err.Error(), "unknown format major version") {
		err = fmt.Errorf("%w: %w", engine.ErrNewer, err)
	}
	return desc, err
}

const (
	memtableSize = 32 << 20
	memtables    = 4       // at most; then writers wait
	logStep      = 8 << 20 // how much a log grows at a time

	// cacheSize is for the blocks of tables, where cold rows are, and for the
	// memtables: Pebble subtracts the memtables' size from the cache, so a
	// cache of only that size would keep no blocks.
	cacheSize = 64<<20 + memtables*memtableSize
)

func openStore(o Options, fail func(error)) (*store, error) {
	if err := o.FS.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	s := &store{logf: o.Logf, boot: o.Clock.Boot}
	s.Tell = func(err error) {
		if s.fs.phase.Load() == serving { // otherwise openStore returns it
			fail(err)
		}
	}
	s.syncs.over.L = &s.syncs.mu
	s.fs = &stateFS{FS: o.FS, Failure: &s.Failure, dir: o.Dir}
	fresh, err := s.checkFiles()
	if err != nil {
		return nil, err
	}
	lock, err := pebble.LockDirectory(o.Dir, s.fs)
	if err != nil {
		return nil, err
	}
	if fresh {
		err = s.fs.syncDir() // so that a crash leaves no files without pidFile
	}
	// This comes before Pebble opens, because Pebble would take damage for the
	// end of the log.
	if err == nil {
		err = s.inspect()
	}
	if err == nil {
		err = s.fs.needRoom(s.logBytes)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	options := s.options()
	options.Lock = lock
	options.Cache = pebble.NewCache(cacheSize)
	defer options.Cache.Unref()
	s.fs.phase.Store(opening)
	db, err := openPebble(o.Dir, options)
	if err != nil {
		if err = corruption(cmp.Or(s.Failed(), err)); damaged(err) {
			err = fmt.Errorf("%w: %w", engine.ErrCorrupt, err)
		}
		return nil, errors.Join(err, lock.Close())
	}
	s.db, s.reader, s.lock = db, reader{db}, lock
	err = s.complete()
	s.fs.phase.Store(serving)
	if err = corruption(cmp.Or(s.Failed(), err)); err != nil {
		return nil, errors.Join(err, db.Close(), s.closeJournal(false), lock.Close())
	}
	s.startReserve()
	return s, nil
}

// complete brings what Pebble has opened up to the journal and the marks, and
// begins new ones.
func (s *store) complete() error {
	if err := s.openJournal(); err != nil {
		return err
	}
	found, err := s.checkFormat()
	if err != nil {
		return err
	}
	birth, err := s.reconcile(found > 0)
	if err != nil {
		return err
	}
	if err := s.startJournal(); err != nil {
		return err
	}
	if err := s.noteCopy(birth); err != nil {
		return err
	}
	return s.writeMarks() // not earlier: a copy is known by the file
}

// openPebble returns a panic of Pebble as an error. Pebble panics at some
// failures of the disk, after it has released everything.
func openPebble(dir string, o *pebble.Options) (db *pebble.DB, err error) {
	defer func() { err = cmp.Or(panicked(recover()), err) }()
	return pebble.Open(dir, o)
}

// panicked returns what was recovered from a panic as an error.
func panicked(recovered any) error {
	if recovered == nil {
		return nil
	}
	if err, ok := recovered.(error); ok {
		return err
	}
	return fmt.Errorf("%v", recovered)
}

// options returns Pebble's options, as far as they differ from the defaults.
// The package's documentation has the measurements.
func (s *store) options() *pebble.Options {
	o := &pebble.Options{
		FS:                          s.fs,
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                memtableSize,
		MemTableStopWritesThreshold: memtables,
		Logger:                      logger{s},
		EventListener: &pebble.EventListener{
			// A store that cannot flush will block a later writer for good, so
			// it fails at once. If only space is lacking, Pebble tries again
			// until there is some.
			BackgroundError: func(err error) {
				if !isFull(err) {
					s.Fail(corruption(err))
				}
				s.fs.room.refused.Store(true)
			},
			// Nobody is served meanwhile.
			WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
				s.logf("engine: the disk is too slow for what is written (%s): all wait until it has caught up", info.Reason)
			},
			WriteStallEnd: func() { s.logf("engine: the disk has caught up") },
			// The reader also gets an error: Open and a transaction return it,
			// and a compaction in the background fails.
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				s.logf("engine: corruption of %s: %s", info.Path, words(info.Details))
			},
		},
	}
	o.Experimental.TombstoneDenseCompactionThreshold = -1 // never
	// Pebble's own scheduler also wakes up ten times a second, to see whether more
	// compactions may run at once. Here it is always one, and the end of one starts
	// the next.
	o.CompactionConcurrencyRange = func() (lower, upper int) { return 1, 1 }
	o.Experimental.CompactionScheduler = pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()
	o.Levels[0].FilterPolicy = bloom.FilterPolicy(10) // also for the other levels
	return o
}

// A logger receives Pebble's messages. Its Fatalf returns, so Pebble continues
// after a fatal error; what it writes then is discarded.
type logger struct{ s *store }

func (l logger) Infof(string, ...any) {}

func (l logger) Errorf(format string, args ...any) { l.s.logf("pebble: "+format, args...) }

func (l logger) Fatalf(format string, args ...any) { l.s.Fail(fmt.Errorf(format, args...)) }
