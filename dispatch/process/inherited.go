package process

import "bytes"

// ActorMark is the variable that each launched process has, and hands on to all that it
// starts: the id of its actor.
const ActorMark = "LEASEHOLD_ACTOR_ID"

// maxAncestors bounds the walk from a process to its ancestors.
const maxAncestors = 64

// Inherited returns the value of a variable in the environment that a process was
// started with, or else the nearest of its ancestors that had it.
func Inherited(pid int, name string) (value string, ok bool) {
	for range maxAncestors {
		now := Find(pid)
		if now.PID == 0 {
			break
		}
		if value, ok := startedWith(pid, name); ok {
			return value, true
		}
		pid = now.Parent
	}
	return "", false
}

// startedWith returns the value of a variable in the environment that a process was
// started with.
func startedWith(pid int, name string) (value string, ok bool) {
	prefix := []byte(name + "=")
	for pair := range bytes.SplitSeq(readEnviron(pid), []byte{0}) {
		if value, ok := bytes.CutPrefix(pair, prefix); ok {
			return string(value), true
		}
	}
	return "", false
}
