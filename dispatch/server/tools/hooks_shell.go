package tools

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/registry"
)

// looks remember the state of files before shell commands that are running. The
// zero looks is ready to use.
type looks struct {
	mu    sync.Mutex
	at    map[string]look // by command
	order []string        // the keys of at, oldest first
}

// A look is the state of files that others have leased, as the hook reported
// it.
type look struct {
	files []seenFile
	since uint64 // number of the last write before it
}

// maxLooks is how many commands may run at once.
const maxLooks = 256

func (l *looks) note(command string, seen look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(seen.files) == 0 { // what was noted is that of an earlier command
		delete(l.at, command)
		l.order = slices.DeleteFunc(l.order, func(c string) bool { return c == command })
		return
	}
	if l.at == nil {
		l.at = make(map[string]look)
	}
	if _, known := l.at[command]; !known {
		if len(l.order) == maxLooks {
			delete(l.at, l.order[0])
			l.order = slices.Delete(l.order, 0, 1)
		}
		l.order = append(l.order, command)
	}
	l.at[command] = seen
}

func (l *looks) of(command string) look {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at[command]
}

type commandArgs struct {
	clientArg
	Party   string     `json:"party,omitempty" doc:"the sub-agent, by the id that its client gave it" max:"1024"`
	ToolUse string     `json:"tool_use_id,omitempty" doc:"which command, if several run at once" max:"128"`
	Files   []seenFile `json:"files,omitempty" doc:"that others have leased" max:"10000"`
}

type seenFile struct {
	Key  string `json:"key" jsonschema:"of the lease"`
	Look string `json:"look" jsonschema:"what changes when the file does"`
}

// command returns the key of a command among those that run.
func (a commandArgs) command(se *dispatch.Session) string {
	whose := se.Actor().ID.String()
	if se.Actor().Role == dispatch.Operator { // each hook is another
		whose = strconv.Itoa(a.PID) + a.Mark
	}
	return fmt.Sprintf("%s %q %q", whose, a.Party, a.ToolUse)
}

type seenFiles struct {
	Files []seenFile `json:"files"`
}

func (s seenFiles) Text() string {
	return counted(len(s.Files), "file of another", "files of others", "")
}

func (h *hooks) command(_ context.Context, se *dispatch.Session, a commandArgs) (seenFiles, error) {
	if a.Files != nil {
		h.looks.note(a.command(se), look{a.Files, h.state.Writes()})
	}
	return seenFiles{append([]seenFile{}, h.looks.of(a.command(se)).files...)}, nil
}

type changedArgs struct {
	commandArgs
	Run       string `json:"run" doc:"of the project" min:"1" max:"64"`
	Name      string `json:"name" doc:"to join a run under, for a client without a session" min:"1" max:"64"`
	Directory string `json:"directory,omitempty" doc:"where the client works" max:"1024"`
}

type changedFiles struct {
	Changed []heldFile `json:"changed"`
}

func (c changedFiles) Text() string {
	return counted(len(c.Changed), "file of another has changed", "files of others have changed", "")
}

func (h *hooks) changed(ctx context.Context, se *dispatch.Session, a changedArgs) (changedFiles, error) {
	list := changedFiles{Changed: []heldFile{}}
	by, err := h.state.SessionFor(ctx, se, dispatch.Writer{
		PID: a.PID, Run: a.Run, Home: true, Name: a.Name, Party: partyOf(a.Party), Origin: dispatch.Origin{Directory: a.Directory, Mark: a.Mark},
	})
	if err != nil {
		return list, err
	}
	var keys []string
	for _, file := range a.Files {
		keys = append(keys, file.Key)
	}
	if len(keys) == 0 {
		return list, &registry.ArgumentError{Argument: "files", Problem: "must be given"}
	}
	held, err := h.state.Conflicts(ctx, se, []int{a.PID}, a.marks(), a.Run, keys)
	if err != nil {
		return list, err
	}
	since := h.looks.of(a.command(se)).since
	for _, held := range held {
		if !slices.Contains(keys, held.Key) {
			continue // a directory above it, which is reported separately
		}
		text := fmt.Sprintf("%s, which you have leased, changed while a shell command of mine ran, which nobody checks. If it was not you, read it again before you go on.", held.Key)
		told, err := by.NoteChanged(ctx, partyOf(a.Party), since, held, text)
		if err != nil {
			return list, err
		}
		if told {
			list.Changed = append(list.Changed, heldFile{held.Key, RefusalOf(held).locate(ctx, se, held).Message})
		}
	}
	return list, nil
}
