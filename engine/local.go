package engine

import "context"

type localKey struct{}

// Local marks a caller that, together with everybody it passes the answer to,
// runs on this machine. What it sees and does must survive the end of the
// daemon. A crash of the machine ends these processes too, so they need not
// wait for the disk. After a power cut the state is that of some earlier
// instant, and nobody who was told of anything later is left.
func Local(ctx context.Context) context.Context {
	return context.WithValue(ctx, localKey{}, true)
}

// IsLocal reports whether ctx comes from [Local].
func IsLocal(ctx context.Context) bool { return ctx.Value(localKey{}) != nil }

type peekKey struct{}

// Peek marks a View whose caller tells nobody what it has read, but only
// decides whether to go on. The View does not wait until that is durable. It also
// marks a Get of a row that never changes and that an answer has referred to, for
// example in a transaction that has returned: such a row is durable already.
func Peek(ctx context.Context) context.Context {
	return context.WithValue(ctx, peekKey{}, true)
}

// IsPeek reports whether ctx comes from [Peek].
func IsPeek(ctx context.Context) bool { return ctx.Value(peekKey{}) != nil }

type neededKey struct{}

// Needed marks an Update that must succeed even on a full disk, because it
// releases, expires or ends something. It is not refused with [ErrFull] but
// uses the reserve, and it is not refused with [ErrUntended].
func Needed(ctx context.Context) context.Context {
	return context.WithValue(ctx, neededKey{}, true)
}

// IsNeeded reports whether ctx comes from [Needed].
func IsNeeded(ctx context.Context) bool { return ctx.Value(neededKey{}) != nil }

type turnKey struct{}

// A Turn limits how much a caller does at the same time as others. A caller has
// its turn when it calls the engine, and gives it back while it only waits.
type Turn interface {
	// Wait says that the caller only waits for the disk from now on. It may be
	// called more than once.
	Wait()
	// Heavy says, within a transaction, that it is more work than most, so that
	// others go first before the caller's next one.
	Heavy()
	// Pause says that the caller waits for a change, and Resume that it
	// continues. Resume may wait for others; after an error the caller has no
	// turn and must end.
	Pause()
	Resume() error
	// Look says that the caller looks for a change for which it would wait, and
	// Looked that it has looked. Look may wait for others; after an error the
	// caller must not look. Looked may be called more than once.
	Look() error
	Looked()

	// Begin says that the caller is about to make a snapshot, and Long that the
	// snapshot is more work than most, or that much was read. Both may wait for
	// others, and end the snapshot with their error. End says that it is over;
	// it is called if Begin has returned no error.
	Begin() error
	Long() error
	End()
}

// InTurn makes t the turn of a caller.
func InTurn(ctx context.Context, t Turn) context.Context {
	return context.WithValue(ctx, turnKey{}, t)
}

// TurnOf returns the t of [InTurn], or a turn that never waits.
func TurnOf(ctx context.Context) Turn {
	if t, ok := ctx.Value(turnKey{}).(Turn); ok {
		return t
	}
	return noTurn{}
}

type noTurn struct{}

func (noTurn) Wait()         {}
func (noTurn) Heavy()        {}
func (noTurn) Pause()        {}
func (noTurn) Resume() error { return nil }
func (noTurn) Look() error   { return nil }
func (noTurn) Looked()       {}
func (noTurn) Begin() error  { return nil }
func (noTurn) Long() error   { return nil }
func (noTurn) End()          {}
