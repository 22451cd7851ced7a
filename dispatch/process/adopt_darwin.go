package process

import "golang.org/x/sys/unix"

// withoutAdopting runs start: no process adopts others here.
func withoutAdopting(start func() error) error { return start() }

// Boot names this start of the machine.
func Boot() string {
	id, _ := unix.Sysctl("kern.bootsessionuuid")
	return id
}
