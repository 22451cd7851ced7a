package engine

import "context"

type localKey struct{}

// Local says that the caller, and whoever it tells of the answer, are processes
// of this machine. What they see and do must survive the end of the daemon; the
// end of the machine ends them too, so they need not wait for the disk. After a
// power cut the state is as it was at some earlier instant, without what came
// later, and nobody is left who was told of that.
func Local(ctx context.Context) context.Context {
	return context.WithValue(ctx, localKey{}, true)
}

// IsLocal reports whether ctx comes from [Local].
func IsLocal(ctx context.Context) bool {
	local, _ := ctx.Value(localKey{}).(bool)
	return local
}

type neededKey struct{}

// Needed says of an Update that it must happen on a full disk too, so that it is
// not refused with [ErrFull]: it gives back, expires or ends something. The reserve
// is for that.
func Needed(ctx context.Context) context.Context {
	return context.WithValue(ctx, neededKey{}, true)
}

// IsNeeded reports whether ctx comes from [Needed].
func IsNeeded(ctx context.Context) bool {
	needed, _ := ctx.Value(neededKey{}).(bool)
	return needed
}

type diskKey struct{}

// AtDisk has fn called when the caller only waits for the disk any more: for what it
// has written, or to confirm what it has seen. So one of few that may run at once lets
// another do so meanwhile.
func AtDisk(ctx context.Context, fn func()) context.Context {
	return context.WithValue(ctx, diskKey{}, fn)
}

// WaitsForDisk calls the fn of [AtDisk].
func WaitsForDisk(ctx context.Context) {
	if fn, ok := ctx.Value(diskKey{}).(func()); ok {
		fn()
	}
}
