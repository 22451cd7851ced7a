package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Load reads an entry of the layer's store, such as /shared/plan, into v. It
// reports whether the entry exists; if not, v is unchanged.
func (c *Client) Load(ctx context.Context, path string, v any) (found bool, err error) {
	version, err := c.LoadVersion(ctx, path, v)
	return version != 0, err
}

// LoadVersion is Load, and returns the version of the entry, for [Client.StoreIf].
// It is 0 if there is no entry.
func (c *Client) LoadVersion(ctx context.Context, path string, v any) (version uint64, err error) {
	var got struct {
		Entry struct {
			Value   json.RawMessage
			Version uint64
		}
	}
	err = c.do(ctx, &request{method: http.MethodGet, path: entryPath(path)}, &got)
	if CodeOf(err) == "NOT_FOUND" {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return got.Entry.Version, json.Unmarshal(got.Entry.Value, v)
}

// Store writes an entry of the layer's store if the leases of all gates are
// held.
func (c *Client) Store(ctx context.Context, path string, v any, gates ...Gate) error {
	return c.store(ctx, path, "", v, gates)
}

// StoreIf is Store, if the entry still has the version that was loaded, or, with
// version 0, if there is none. Otherwise the code of the error is VERSION_MISMATCH:
// load the entry again, and store what follows from its new value.
func (c *Client) StoreIf(ctx context.Context, path string, version uint64, v any, gates ...Gate) error {
	return c.store(ctx, path, strconv.FormatUint(version, 10), v, gates)
}

// store writes an entry, if it has the version unless that is "".
func (c *Client) store(ctx context.Context, path, version string, v any, gates []Gate) error {
	value, err := argument("value", v)
	if err != nil {
		return err
	}
	in := struct {
		Value json.RawMessage `json:"value"`
		Gates []Gate          `json:"require_leases,omitempty"`
	}{value, gates}
	return c.do(ctx, &request{method: http.MethodPut, path: entryPath(path), body: encode(in), version: version}, nil)
}

func entryPath(path string) string {
	return "/store" + (&url.URL{Path: "/" + strings.TrimPrefix(path, "/")}).EscapedPath()
}
