package server

import (
	"net"
	"syscall"
	"time"
)

// A Silence is how long the machine at the other end of a TCP connection may not answer
// before the connection ends. TCP asks an idle connection whether the other machine is
// still there. While something that was sent is not acknowledged, it does not ask, and
// would send that again for a quarter of an hour. So the time for that is limited, too:
// else a lease that is granted to somebody whose machine has just gone would stay theirs
// that long.
type Silence time.Duration

// KeepAlive returns how an idle connection is asked.
func (s Silence) KeepAlive() net.KeepAliveConfig {
	within := time.Duration(s)
	return net.KeepAliveConfig{Enable: true, Idle: within / 2, Interval: within / 6, Count: 3}
}

// Control limits how long what was sent may be unacknowledged: see [net.Dialer] and
// [net.ListenConfig]. Accepted connections inherit it.
func (s Silence) Control(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) { failed = limitSilence(int(fd), time.Duration(s)) })
	if err != nil {
		return err
	}
	return failed
}
