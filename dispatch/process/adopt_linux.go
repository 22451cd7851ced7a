package process

import (
	"sync"

	"golang.org/x/sys/unix"
)

// adopting is whether this process adopts the descendants that lose their
// parent.
var adopting struct {
	sync.Mutex
	on bool
}

// withoutAdopting runs start, which starts a process that is to be nobody's
// here.
func withoutAdopting(start func() error) error {
	adopting.Lock()
	defer adopting.Unlock()
	if !adopting.on {
		return start()
	}
	if err := setSubreaper(0); err != nil {
		return err
	}
	defer func() { _ = setSubreaper(1) }() // it was possible before
	return start()
}

func setSubreaper(on uintptr) error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, on, 0, 0, 0)
}

// Boot names this start of the machine.
func Boot() string { return bootID() }
