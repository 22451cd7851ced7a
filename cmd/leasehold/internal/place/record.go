package place

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/clock"
)

// A Record says which daemon serves a state and where it listens. The daemon
// writes it into its state when it is ready, and removes it when it stops. A
// daemon that is killed leaves it behind.
type Record struct {
	State     string    `json:"state"`
	Socket    string    `json:"socket"`
	HTTP      string    `json:"http,omitempty"` // URL
	PID       int       `json:"pid"`
	Start     string    `json:"start"` // start time of the process, in the system's format
	Boot      string    `json:"boot"`
	StartedAt time.Time `json:"started_at"`
	Version   string    `json:"version"`
	Binary    string    `json:"binary"`
	BinaryID  string    `json:"binary_id"` // changes when the file is replaced
	Args      []string  `json:"args"`
	Dir       string    `json:"dir"`       // its working directory
	OnDemand  bool      `json:"on_demand"` // started by a client, not by a person or a supervisor

	Format       int           `json:"state_format"`           // of the state; see [dispatch.Format]
	Files        int           `json:"files_format,omitempty"` // the format of its files; see [pebble.Format]
	Database     bool          `json:"database,omitempty"`     // it has the state
	Certificates []Certificate `json:"certificates,omitempty"`
}

// An Owner is the state whose daemon listens, or last listened, on a socket.
type Owner struct {
	State    string `json:"state"`
	OnDemand bool   `json:"on_demand"`
	PID      int    `json:"pid"`
}

// A storedRecord and a storedOwner are what the files have. Their fields take the place of
// those with the same name in what they embed.
type (
	storedRecord struct {
		*Record
		State  exact   `json:"state"`
		Socket exact   `json:"socket"`
		Binary exact   `json:"binary"`
		Args   []exact `json:"args"`
		Dir    exact   `json:"dir"`
	}
	storedOwner struct {
		*Owner
		State exact `json:"state"`
	}
)

// An exact text keeps all its bytes in JSON, which has only text in UTF-8, and paths need
// not be that. Other text is {"base64": "…"}.
type exact string

type inBase64 struct {
	Bytes []byte `json:"base64"`
}

func (e exact) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(e)) {
		return json.Marshal(string(e))
	}
	return json.Marshal(inBase64{[]byte(e)})
}

func (e *exact) UnmarshalJSON(text []byte) error {
	if text[0] != '{' {
		return json.Unmarshal(text, (*string)(e))
	}
	var b inBase64
	err := json.Unmarshal(text, &b)
	*e = exact(b.Bytes)
	return err
}

func recordPath(state string) string { return filepath.Join(state, "daemon.json") }
func ownerPath(socket string) string { return socket + ".owner" }

// ThisProcess fills in the fields that describe this process.
func (r Record) ThisProcess() Record {
	self := process.Find(os.Getpid())
	r.PID, r.Start, r.Boot = os.Getpid(), self.Start, clock.Boot()
	r.StartedAt, r.Args = time.Now(), os.Args[1:]
	r.Dir, _ = os.Getwd()         // if it is unknown, a restart uses the state's directory
	r.Binary, _ = os.Executable() // if it is unknown, a replacement cannot be detected
	r.BinaryID = binaryID(r.Binary)
	return r
}

// Write stores the record in the state, and its owner beside the socket.
func (r Record) Write() error {
	stored := storedRecord{Record: &r, State: exact(r.State), Socket: exact(r.Socket), Binary: exact(r.Binary), Dir: exact(r.Dir)}
	for _, arg := range r.Args {
		stored.Args = append(stored.Args, exact(arg))
	}
	if err := writeAtomically(recordPath(r.State), stored); err != nil {
		return err
	}
	owner := Owner{State: r.State, OnDemand: r.OnDemand, PID: r.PID}
	return writeAtomically(ownerPath(r.Socket), storedOwner{Owner: &owner, State: exact(r.State)})
}

// Remove removes the record of a daemon that stops. The socket still belongs to
// the state.
func (r Record) Remove() error {
	if now, ok := ReadRecord(r.State); !ok || now.PID != r.PID || now.Start != r.Start {
		return nil // another daemon has written it since
	}
	return os.Remove(recordPath(r.State))
}

// Alive reports whether the process of the daemon runs.
func (r Record) Alive() bool {
	return process.Peer{PID: r.PID, Start: r.Start}.Alive()
}

// Replaced says what has become of the daemon's binary, if it is not the one any more
// that was started: it was replaced or removed.
func (r Record) Replaced() string {
	switch now := binaryID(r.Binary); {
	case r.BinaryID == "" || now == r.BinaryID:
		return ""
	case now == "":
		return "has been removed"
	default:
		return "has been replaced"
	}
}

// binaryID identifies one version of a file; "" if there is no file.
func binaryID(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d:%d:%d:%d", stat.Dev, stat.Ino, info.Size(), info.ModTime().UnixNano())
}

// ReadRecord reads the record of a state, if there is one.
func ReadRecord(state string) (r Record, ok bool) {
	stored := storedRecord{Record: &r}
	ok = readOwn(recordPath(state), &stored)
	r.State, r.Socket, r.Binary, r.Dir = string(stored.State), string(stored.Socket), string(stored.Binary), string(stored.Dir)
	for _, arg := range stored.Args {
		r.Args = append(r.Args, string(arg))
	}
	return r, ok && SameState(r.State, state) && r.PID > 0
}

// SameState reports whether two paths name one state, which may be reached through
// symbolic links, too.
func SameState(a, b string) bool {
	if a == b {
		return true
	}
	of, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(of, other)
}

// OwnerOf returns the state that a socket belongs to. If that state no longer
// exists, the socket belongs to none.
func OwnerOf(socket string) (o Owner, ok bool) {
	stored := storedOwner{Owner: &o}
	if !readOwn(ownerPath(socket), &stored) || stored.State == "" {
		return Owner{}, false
	}
	o.State = string(stored.State)
	if _, err := os.Stat(o.State); errors.Is(err, fs.ErrNotExist) {
		return Owner{}, false
	}
	return o, true
}

// readOwn decodes a JSON file that this user wrote. It ignores the files of
// other users, who may make a pipe where a socket is in a directory such as /tmp.
// Opening that must not wait for a writer.
func readOwn(path string, v any) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Getuid() {
		return false
	}
	return json.NewDecoder(f).Decode(v) == nil
}

// writeAtomically replaces a file with a complete one that only this user can
// read.
func writeAtomically(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// TryWrite writes a file in a directory to the disk, locks it, and removes it again. The
// error says why that cannot be done: the free space of a file system says nothing of
// quotas, of files that it can no longer make, or of a disk that fails.
func TryWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".leasehold-try-*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4<<10))
	_, lockErr := process.TryLock(f) // nobody else knows the file
	return errors.Join(err, lockErr, f.Sync(), f.Close(), os.Remove(f.Name()))
}

// Open reports whether a running process has the state open, listening or not.
func Open(state string) bool {
	return process.Locked(filepath.Join(state, "db", "LOCK")) // Pebble's name for it
}

// CheckPrivate returns an error if a state belongs to another user or is
// writable by others, who could replace its contents, or if they could move it
// away. A directory that does not exist is accepted, if others cannot move what
// is above it and [CheckSudo] accepts it.
func CheckPrivate(dir string) error {
	if above := server.OpenAbove(dir); above != "" {
		return fmt.Errorf("state %s can be moved away by other users, who may write in %s: chmod o-w %s, or chmod +t if they are to, or name another directory", dir, above, above)
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return CheckSudo(dir)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("state %s is not a directory", dir)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode().Perm(); {
	case ok && int(stat.Uid) != os.Getuid():
		return fmt.Errorf("state %s belongs to user %d, and this process runs as user %d: run as that user, or name another directory with --state",
			dir, stat.Uid, os.Getuid())
	case mode&0o022 != 0:
		return fmt.Errorf("state %s can be written by other users (mode %v): check what is in it, then chmod 700 %s", dir, mode, dir)
	}
	return nil
}

// CheckSudo returns an error if sudo runs this process and a directory is yet to be made in
// one of the user who called sudo. It would be root's, and so would be all above it that is
// made with it, such as ~/.local, which other programs use as well.
func CheckSudo(dir string) error {
	user := os.Getenv("SUDO_UID")
	if os.Getuid() != 0 || user == "" || user == "0" {
		return nil
	}
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
			continue
		}
		if err != nil || at == dir {
			return nil // whoever uses the directory sees the error, or whose it is
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && strconv.Itoa(int(stat.Uid)) == user {
			return fmt.Errorf("%s would belong to root, and user %s, who called sudo, could not use it: run leasehold without sudo, or make that directory first if it is to be root's", dir, user)
		}
		return nil
	}
}

// SameBoot reports whether the machine has not been restarted since the record
// was written.
func (r Record) SameBoot() bool { return r.Boot == clock.Boot() }
