// Package mail is the messages that the actors of a run send one another: an
// inbox for each actor, first in, first out.
//
// # Contract
//
//   - A message is durable before its sender has an answer.
//   - It is told once, in the order in which it was sent: by a call that asks for
//     messages, or beside the answer of another call. It is told again if the
//     answer that told it was not read, see [Retell] and [Untell], and after a
//     crash it may be.
//   - What was told is kept for [call.Keep], so that a call that is sent again
//     gets the same messages. Then it is forgotten with the next change of the
//     inbox.
//   - An inbox is bounded, and so is the part of it that one sender may fill. A
//     message that finds no room is refused with a [registry.LimitError].
//   - Nobody but its recipient is shown a message. With the record of an actor
//     its inbox is gone.
//
// # Key schema
//
//	inbox/<actor>           the messages of the actor in order: id, sender, party, size, when and to which session it was told
//	~mail/<actor><message>  Message
//
// An inbox is one row of a few kilobytes, and changes with each message; so it is
// also what a waiting call watches. The texts are cold.
package mail

import "github.com/leasehold/leasehold/engine"

const (
	inboxPrefix = "inbox/"
	textPrefix  = engine.Cold + "mail/"
)
