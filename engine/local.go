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
