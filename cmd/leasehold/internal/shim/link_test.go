package shim

import (
	"bufio"
	"net"
	"strconv"
	"testing"
	"testing/synctest"
)

// A daemon that reads a call only once its answers have been read does not wait for a
// shim that waits for it.
func TestADaemonThatIsWrittenToIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		l := newLink(near, near)
		defer l.close()
		const answers = 10
		got := make(chan string)
		go func() {
			for i := range answers {
				if _, err := far.Write(strconv.AppendInt(nil, int64(i), 10)); err != nil {
					t.Error(err)
				}
				far.Write([]byte("\n"))
			}
			line, _ := bufio.NewReader(far).ReadString('\n')
			got <- line
		}()
		l.write([]byte("call"))
		if line := <-got; line != "call\n" {
			t.Errorf("the daemon has read %q", line)
		}
		for i := range answers {
			line, early := l.takeEarly()
			if !early {
				line = <-l.lines
			}
			if string(line) != strconv.Itoa(i) {
				t.Errorf("answer %d is %q", i, line)
			}
		}
	})
}
