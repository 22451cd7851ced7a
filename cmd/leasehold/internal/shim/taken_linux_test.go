package shim

import (
	"io"
	"os"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A client has an answer once it has read it from its stdin, whatever that is, and
// a cancel that comes a little later may have been sent before.
func TestAnAnswerIsTakenWhenItIsRead(t *testing.T) {
	for name, open := range map[string]func() (r, w *os.File){
		"pipe": func() (r, w *os.File) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			return r, w
		},
		"socket": func() (r, w *os.File) {
			fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
			if err != nil {
				t.Fatal(err)
			}
			return os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, w := open()
			defer r.Close()
			defer w.Close()
			d := newDelivery(w)
			d.hand("a")
			d.look()
			time.Sleep(time.Minute)
			if d.has("a") || d.timer == nil {
				t.Errorf("%s: it is taken before it is written", name)
			}
			if _, err := d.Write([]byte("answer\n")); err != nil {
				t.Fatal(err)
			}
			d.look()
			time.Sleep(time.Minute)
			if d.has("a") || d.timer == nil {
				t.Errorf("%s: it is taken before it is read", name)
			}
			if _, err := r.Read(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			d.look()
			if d.has("a") || d.timer != nil {
				t.Errorf("%s: no cancel can have been on its way, or there is more to look for", name)
			}
			time.Sleep(onItsWay + 1)
			if !d.has("a") || d.has("b") {
				t.Errorf("%s: it is not taken", name)
			}
			d.hand("a")
			if d.has("a") {
				t.Errorf("%s: the answer of another request with this id is taken", name)
			}
		})
	}
}

// Of the answers that were read only the latest are remembered.
func TestAnswersAreForgotten(t *testing.T) {
	d := newDelivery(io.Discard)
	for i := range 2*maxTaken + 1 {
		d.note(strconv.Itoa(i), time.Now())
	}
	if _, latest := d.taken[strconv.Itoa(2*maxTaken)]; !latest || len(d.taken) != maxTaken || len(d.order) != maxTaken {
		t.Errorf("%d answers are remembered, %d in order; the latest: %v", len(d.taken), len(d.order), latest)
	}
}
