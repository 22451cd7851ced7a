package book

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// ANCHOR: file
var errStale = errors.New("a newer holder has written: your lease is lost")

// writeFenced replaces what a file holds, unless a greater token has written it. Its
// first line is the token of the last write.
func writeFenced(path string, token uint64, data string) error {
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // gives the lock back, as does the end of the process
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	newest, _, err := readFenced(path)
	if err != nil {
		return err
	}
	if token < newest {
		return errStale
	}
	temporary := path + ".new" // the lock's holder alone writes it
	f, err := os.Create(temporary)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%d\n%s", token, data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// readFenced gives the token of the last write and what it wrote.
func readFenced(path string) (token uint64, data string, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, "", nil
	}
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, "", err
	}
	if token, err = strconv.ParseUint(strings.TrimSpace(line), 10, 64); err != nil {
		return 0, "", err
	}
	rest, err := io.ReadAll(r)
	return token, string(rest), err
}

// ANCHOR_END: file

// ANCHOR: service
// A document is served over HTTP and takes writes only from the newest holder.
type document struct {
	mu     sync.Mutex
	newest uint64 // the greatest token seen: a database keeps it in the row of the data
	data   string
}

func (d *document) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, err := strconv.ParseUint(r.Header.Get("Lease-Token"), 10, 64)
	if err != nil || r.Method != http.MethodPut {
		http.Error(w, "PUT with the header Lease-Token", http.StatusBadRequest)
		return
	}
	data, err := io.ReadAll(r.Body) // before the lock: a slow client holds up nobody
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if token < d.newest {
		http.Error(w, "a newer holder has written: your lease is lost", http.StatusPreconditionFailed)
		return
	}
	d.newest, d.data = token, string(data)
}

// ANCHOR_END: service

// A resource is written with a token.
type resource struct {
	write func(token uint64, data string) error
	read  func() (data string)
}

func fencedFile(t *testing.T) resource {
	path := filepath.Join(t.TempDir(), "plan")
	return resource{
		write: func(token uint64, data string) error { return writeFenced(path, token, data) },
		read: func() string {
			_, data, err := readFenced(path)
			if err != nil {
				t.Fatal(err)
			}
			return data
		},
	}
}

func fencedService(t *testing.T) resource {
	d := new(document)
	web := httptest.NewServer(d)
	t.Cleanup(web.Close)
	return resource{
		write: func(token uint64, data string) error {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, web.URL, strings.NewReader(data))
			if err != nil {
				return err
			}
			r.Header.Set("Lease-Token", strconv.FormatUint(token, 10))
			resp, err := web.Client().Do(r)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			switch resp.StatusCode {
			case http.StatusOK:
				return nil
			case http.StatusPreconditionFailed:
				return errStale
			default:
				return fmt.Errorf("status %d", resp.StatusCode)
			}
		},
		read: func() string {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.data
		},
	}
}

// A holder that wakes up after its lease went to another changes nothing.
func TestFencing(t *testing.T) {
	for name, make := range map[string]func(*testing.T) resource{"file": fencedFile, "service": fencedService} {
		t.Run(name, func(t *testing.T) {
			r := make(t)
			for _, w := range []struct {
				token uint64
				data  string
				err   error
			}{
				{7, "of the first holder", nil},
				{7, "of the first holder, again", nil},
				{9, "of the second", nil},
				{7, "of the first, which woke up late", errStale},
			} {
				if err := r.write(w.token, w.data); !errors.Is(err, w.err) {
					t.Errorf("token %d: %v, want %v", w.token, err, w.err)
				}
			}
			if data := r.read(); data != "of the second" {
				t.Errorf("the resource holds what was written %s", data)
			}
		})
	}
}

// Writers with many tokens at once: what is left is that of the greatest.
func TestFencingOfManyWriters(t *testing.T) {
	for name, make := range map[string]func(*testing.T) resource{"file": fencedFile, "service": fencedService} {
		t.Run(name, func(t *testing.T) {
			r := make(t)
			const writers = 20
			var wg sync.WaitGroup
			for token := uint64(1); token <= writers; token++ {
				wg.Go(func() {
					if err := r.write(token, fmt.Sprint(token)); err != nil && !errors.Is(err, errStale) {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if data := r.read(); data != fmt.Sprint(writers) {
				t.Errorf("what is left is of token %s", data)
			}
		})
	}
}
