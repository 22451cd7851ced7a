package launcher

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Logs are the output files of an actor of a run.
type Logs struct {
	Path    string // of the actor
	Stdout  []string
	Stderr  []string // one file for each start, the first one first
	Running bool
}

// Logs returns the logs of the actors that were started, the first one first.
func (d *Directory) Logs() (list []Logs, err error) {
	_, err = d.recorded(func(e Event) {
		if e.Event != ActorStarted && e.Event != ActorExited {
			return
		}
		i := slices.IndexFunc(list, func(l Logs) bool { return l.Path == e.Path })
		if i < 0 {
			i = len(list)
			list = append(list, Logs{Path: e.Path})
		}
		list[i].Running = e.Event == ActorStarted
		if len(e.Logs) == 2 {
			list[i].Stdout = append(list[i].Stdout, d.moved(e.Logs[0]))
			list[i].Stderr = append(list[i].Stderr, d.moved(e.Logs[1]))
		}
	})
	if err != nil {
		return nil, err
	}
	file, err := d.RunFile()
	if err != nil || d.Finished() || !file.Dispatcher.Alive() {
		for i := range list {
			list[i].Running = false
		}
	}
	return list, nil
}

// moved returns the path of a file of an actor if the run directory was moved
// after the path was recorded.
func (d *Directory) moved(name string) string {
	return filepath.Join(d.Path, actorsDir, filepath.Base(filepath.Dir(name)), filepath.Base(name))
}

// A Tail reads a file to which a process writes, and which starts over when it
// is full: see [Earlier].
type Tail struct {
	File *os.File
	at   int64 // everything before this offset has been read
}

// All passes on everything that is kept. It must be called before the first
// Next.
func (t *Tail) All(give func([]byte)) error {
	earlier, err := os.Open(t.File.Name() + Earlier)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		defer earlier.Close()
		if err := t.take(earlier, give); err != nil {
			return err
		}
		t.at = 0
	}
	return t.take(t.File, give)
}

// Next passes on what has been written since the last call.
func (t *Tail) Next(give func([]byte)) error {
	if info, err := t.File.Stat(); err == nil && info.Size() < t.at { // the file has started over
		if earlier, err := os.Open(t.File.Name() + Earlier); err == nil {
			err = t.take(earlier, give)
			earlier.Close()
			if err != nil {
				return err
			}
		}
		t.at = 0
	}
	return t.take(t.File, give)
}

func (t *Tail) take(from io.ReaderAt, give func([]byte)) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.ReadAt(buf, t.at)
		t.at += int64(n)
		if n > 0 {
			give(buf[:n])
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
