package call

import (
	"context"
	"slices"
	"sync"
)

// Underway has the calls with a request_id that are being answered. One that
// waits has no answer yet, so no row would refuse a different request under its
// request_id. The zero value is ready for use.
type Underway struct {
	mu    sync.Mutex
	calls map[string][]*entered // by key
}

// An entered call is one that has not returned.
type entered struct {
	ctx   context.Context // of the call; once it is over, the call no longer counts
	kind  Kind
	print uint64
}

// Enter refuses a call with [ErrReused] if a different one is being answered
// under its request_id. Otherwise the caller must call leave when the call has
// returned. kind is that of the call's answer.
func (u *Underway) Enter(ctx context.Context, kind Kind, c Call) (leave func(), err error) {
	if c.request == "" {
		return func() {}, nil
	}
	key, own := c.Key(), &entered{ctx, kind, c.reqPrint}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, other := range u.calls[key] {
		if other.ctx.Err() == nil && (other.kind != kind || other.print != own.print) {
			return nil, ErrReused
		}
	}
	if u.calls == nil {
		u.calls = make(map[string][]*entered)
	}
	u.calls[key] = append(u.calls[key], own)
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		rest := slices.DeleteFunc(u.calls[key], func(e *entered) bool { return e == own })
		if u.calls[key] = rest; len(rest) == 0 {
			delete(u.calls, key)
		}
	}, nil
}
