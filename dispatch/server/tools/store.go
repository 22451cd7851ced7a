package tools

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/layer"
)

// storeTools returns the tools for the store of a layer. The description of
// kv_set explains its paths.
func storeTools() []Tool {
	read := Effect{ReadOnly: true, Idempotent: true}
	return []Tool{
		tool("kv_get", "Read an entry", "Read an entry of your layer's store; null if there is none.", read, kvGet),
		tool("kv_set", "Write an entry",
			"Write an entry of your layer's store, whether it exists or not. Below /shared/ all write; below /ref/ the lead writes and all read; /peer/self/ is yours, and the lead reads it; /leases/ shows leases.",
			Effect{Idempotent: true}, kvSet),
		tool("kv_cas", "Write an entry if it is unchanged",
			"Write an entry if it still has the version that you read. VERSION_MISMATCH has the version that is there.", Effect{}, kvCAS),
		tool("kv_delete", "Delete an entry", "Delete an entry. Answers the version it had, 0 if there was none.", Effect{Idempotent: true}, kvDelete),
		tool("kv_list", "List entries", "List the entries that you may read and a glob matches: * stops at /, ** does not.", read, kvList),
		tool("kv_wait", "Wait for an entry", "Wait for an entry, or for a version of it. Answers the entry as it is then.", read, kvWait),
	}
}

// A layerArg names the layer whose store is used.
type layerArg struct {
	Layer string `json:"layer,omitempty" doc:"self; parent, for a sub-lead; or a sub-lead's name, with read_down" default:"\"self\"" max:"64" for:"leads"`
}

type pathArg struct {
	Path string `json:"path" doc:"such as /shared/plan" min:"1" max:"512"`
}

// An entry is one entry of a store.
type entry struct {
	Path      string          `json:"path"`
	Value     json.RawMessage `json:"value,omitempty"`
	Version   uint64          `json:"version"`
	UpdatedAt stamp           `json:"updated_at"`
	UpdatedBy string          `json:"updated_by" jsonschema:"path of the actor"`
}

func entryOf(e *kvstore.Entry) *entry {
	if e == nil {
		return nil
	}
	return &entry{e.Path.String(), e.Value, e.Version, stampOf(e.UpdatedAt), e.UpdatedBy}
}

type gotEntry struct {
	Entry *entry `json:"entry" jsonschema:"null if there is none"`

	short bool // it is not the one that was waited for
}

func (g gotEntry) Text() string {
	line := "no entry"
	if g.Entry != nil {
		line = fmt.Sprintf("%s version %d, written by %s", g.Entry.Path, g.Entry.Version, g.Entry.UpdatedBy)
	}
	if g.short {
		line += "; call kv_wait again to wait on"
	}
	return line
}

type version struct {
	Version uint64 `json:"version" told:"line"`
}

func (v version) Text() string { return fmt.Sprintf("version %d", v.Version) }

type kvGetArgs struct {
	pathArg
	layerArg
}

func kvGet(ctx context.Context, se *dispatch.Session, a kvGetArgs) (gotEntry, error) {
	view, err := se.Store(ctx, a.Layer)
	if err != nil {
		return gotEntry{}, err
	}
	e, err := view.Get(ctx, a.Path)
	return gotEntry{Entry: entryOf(e)}, err
}

type writeArgs struct {
	pathArg
	Override bool `json:"override,omitempty" doc:"as the lead, write below another's /peer/" default:"false" for:"leads" destroys:"true"`
	layerArg
	fenceArgs
}

// open returns the store to write to, and the write.
func (a writeArgs) open(ctx context.Context, se *dispatch.Session, value json.RawMessage) (*layer.View, layer.Write, error) {
	w := layer.Write{Path: a.Path, Value: value, Override: a.Override}
	view, err := se.Store(ctx, a.Layer)
	if err == nil {
		w.Fence, err = a.fence(ctx, se)
	}
	return view, w, err
}

type kvSetArgs struct {
	writeArgs
	Value json.RawMessage `json:"value" doc:"any JSON, ≤ 1 MiB"`
}

func kvSet(ctx context.Context, se *dispatch.Session, a kvSetArgs) (version, error) {
	view, w, err := a.open(ctx, se, a.Value)
	if err != nil {
		return version{}, err
	}
	v, err := view.Set(ctx, w)
	return version{v}, err
}

type kvCASArgs struct {
	writeArgs
	Expected uint64          `json:"expected_version" doc:"0: there must be none" min:"0"`
	Value    json.RawMessage `json:"value" doc:"any JSON, ≤ 1 MiB"`
}

func kvCAS(ctx context.Context, se *dispatch.Session, a kvCASArgs) (version, error) {
	view, w, err := a.open(ctx, se, a.Value)
	if err != nil {
		return version{}, err
	}
	v, err := view.CAS(ctx, w, a.Expected)
	return version{v}, err
}

type kvDeleteArgs struct {
	writeArgs
	Expected *uint64 `json:"expected_version,omitempty" doc:"only if it has this version" min:"0" limits:"true"`
}

func kvDelete(ctx context.Context, se *dispatch.Session, a kvDeleteArgs) (version, error) {
	view, w, err := a.open(ctx, se, nil)
	if err != nil {
		return version{}, err
	}
	v, err := view.Delete(ctx, w, a.Expected)
	return version{v}, err
}

type kvListArgs struct {
	Glob   string `json:"glob" doc:"such as /shared/**" min:"1" max:"512"`
	After  string `json:"after,omitempty" doc:"next of the previous reply" max:"512"`
	Limit  int    `json:"limit,omitempty" doc:"how many at most" min:"1" max:"1000" default:"100"`
	Values bool   `json:"values,omitempty" doc:"with their values" default:"false"`
	layerArg
}

type entryList struct {
	Truncated bool    `json:"truncated" jsonschema:"there are more, beyond limit or 24 KiB: call again with after"`
	Next      string  `json:"next,omitempty" jsonschema:"the after of the call that goes on, if truncated"`
	Entries   []entry `json:"entries"`
}

func (l entryList) Text() string { return counted(len(l.Entries), "entry", "entries", l.Next) }

func kvList(ctx context.Context, se *dispatch.Session, a kvListArgs) (entryList, error) {
	view, err := se.Store(ctx, a.Layer)
	if err != nil {
		return entryList{}, err
	}
	return listEntries(ctx, view, layer.Listing{Glob: a.Glob, After: a.After, Limit: a.Limit, Values: a.Values})
}

func listEntries(ctx context.Context, view *layer.View, q layer.Listing) (entryList, error) {
	l, err := view.List(ctx, q)
	if err != nil {
		return entryList{}, err
	}
	list := entryList{Entries: []entry{}, Truncated: l.Truncated, Next: l.Next}
	for i := range l.Entries {
		list.Entries = append(list.Entries, *entryOf(&l.Entries[i]))
	}
	return list, nil
}

type kvWaitArgs struct {
	pathArg
	MinVersion uint64  `json:"min_version,omitempty" doc:"default: any" min:"0"`
	Wait       seconds `json:"wait_secs" doc:"how long at most" min:"0" max:"50"`
	layerArg
}

func kvWait(ctx context.Context, se *dispatch.Session, a kvWaitArgs) (gotEntry, error) {
	view, err := se.Store(ctx, a.Layer)
	if err != nil {
		return gotEntry{}, err
	}
	ctx, stop := se.WithinWait(ctx, caller(ctx), a.Wait.duration())
	defer stop()
	e, _, err := view.Wait(ctx, a.Path, a.MinVersion, a.Wait.duration())
	return gotEntry{entryOf(e), e == nil || e.Version < a.MinVersion}, err
}
