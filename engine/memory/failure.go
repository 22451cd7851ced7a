package memory

import "sync/atomic"

// A Failure is the first error of something that does not go on after it.
type Failure struct {
	Tell  func(error) // of it, once
	first atomic.Pointer[error]
}

// Fail makes err the failure, if it is the first.
func (f *Failure) Fail(err error) {
	if f.first.CompareAndSwap(nil, &err) {
		f.Tell(err)
	}
}

// Failed is the failure; nil if there is none.
func (f *Failure) Failed() error {
	if err := f.first.Load(); err != nil {
		return *err
	}
	return nil
}
