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
