package process

import "syscall"

// send signals the process, if it still exists.
func (id identity) send(s syscall.Signal) error {
	if !id.there() {
		return nil
	}
	return unlessGone(syscall.Kill(id.pid, s))
}
