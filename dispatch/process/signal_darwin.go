package process

import "syscall"

// send signals the process that was seen, if it is still there.
func (id identity) send(s syscall.Signal) error {
	if !id.there() {
		return nil
	}
	return unlessGone(syscall.Kill(id.pid, s))
}
