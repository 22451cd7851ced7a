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
func IsLocal(ctx context.Context) bool {
	local, _ := ctx.Value(localKey{}).(bool)
	return local
}

type neededKey struct{}

// Needed marks an Update that must succeed even on a full disk, because it
// releases, expires or ends something. It is not refused with [ErrFull] but
// uses the reserve.
func Needed(ctx context.Context) context.Context {
	return context.WithValue(ctx, neededKey{}, true)
}

// IsNeeded reports whether ctx comes from [Needed].
func IsNeeded(ctx context.Context) bool {
	needed, _ := ctx.Value(neededKey{}).(bool)
	return needed
}

type reader struct{}

// A Reader decides when the snapshots of a caller may work. Begin and Long may wait for
// others, and end the snapshot with their error.
type Reader interface {
	Begin() error // a snapshot is about to be made
	Long() error  // it is more work than most, or much has been read
	End()         // it is over; called if Begin has given no error
}

// ReadIn has r decide when the snapshots of a caller may work.
func ReadIn(ctx context.Context, r Reader) context.Context {
	return context.WithValue(ctx, reader{}, r)
}

// ReaderOf gives the r of [ReadIn], or one that lets everybody work.
func ReaderOf(ctx context.Context) Reader {
	if r, ok := ctx.Value(reader{}).(Reader); ok {
		return r
	}
	return reader{}
}

func (reader) Begin() error { return nil }
func (reader) Long() error  { return nil }
func (reader) End()         {}

type diskKey struct{}

// AtDisk makes the engine call fn as soon as the caller only waits for the
// disk, for its own writes or to confirm what it has read. If only a limited
// number of callers may run at once, fn can let another one run meanwhile.
func AtDisk(ctx context.Context, fn func()) context.Context {
	return context.WithValue(ctx, diskKey{}, fn)
}

// WaitsForDisk calls the fn of [AtDisk].
func WaitsForDisk(ctx context.Context) {
	if fn, ok := ctx.Value(diskKey{}).(func()); ok {
		fn()
	}
}
