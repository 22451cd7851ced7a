package memory

import "sync/atomic"

// A Failure is the first error of something that stops after it.
type Failure struct {
	Tell  func(error) // called once, with the error
	first atomic.Pointer[error]
}

// Fail makes err the failure, unless there is one.
func (f *Failure) Fail(err error) {
	if f.first.CompareAndSwap(nil, &err) {
		f.Tell(err)
	}
}

// Failed returns the failure, or nil.
func (f *Failure) Failed() error {
	if err := f.first.Load(); err != nil {
		return *err
	}
	return nil
}
