// Package mail has the messages that the actors of a run send to one another:
// an inbox for each actor, first in, first out.
//
// # Contract
//
//   - A message is durable before its sender gets an answer.
//   - Each message is told once, in the order of sending: by a call that asks for
//     messages, or together with the answer of another call. It is told again if
//     the answer that told it was not read, see [Retell] and [Untell], and
//     possibly after a crash.
//   - A told message is kept for [call.Keep], so that a repeated call returns
//     the same messages. After that, the next change of the inbox removes it.
//   - The size of an inbox is limited, and so is the part of it that one sender
//     may fill. A message that does not fit is refused with a
//     [registry.LimitError].
//   - A message is shown only to its recipient. The inbox is removed with the
//     record of its actor.
//
// # Key schema
//
//	inbox/<actor>           the messages of the actor in order: id, sender, party, size, when and to which session it was told
//	~mail/<actor><message>  Message
//
// An inbox is one row of a few kilobytes that changes with each message, so a
// waiting call can watch that row. The texts are in cold rows.
package mail

import "github.com/leasehold/leasehold/engine"

const (
	inboxPrefix = "inbox/"
	textPrefix  = engine.Cold + "mail/"
)
