// Package zerolog has what the check of it knows.
package zerolog

// An Event is sent by Msg.
type Event struct{}

// Msg sends it.
func (*Event) Msg(string) {}

// Send sends it.
func (*Event) Send() {}
