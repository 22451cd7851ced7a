package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

// Load reads an entry of the layer's store, such as /shared/plan, into v. It
// reports whether the entry exists; if not, v is unchanged.
func (c *Client) Load(ctx context.Context, path string, v any) (found bool, err error) {
	var got struct {
		Entry struct{ Value json.RawMessage }
	}
	err = c.do(ctx, &request{method: http.MethodGet, path: entryPath(path)}, &got)
	if CodeOf(err) == "NOT_FOUND" {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, json.Unmarshal(got.Entry.Value, v)
}

// Store writes an entry of the layer's store if the leases of all gates are
// held.
func (c *Client) Store(ctx context.Context, path string, v any, gates ...Gate) error {
	value, err := argument("value", v)
	if err != nil {
		return err
	}
	in := struct {
		Value json.RawMessage `json:"value"`
		Gates []Gate          `json:"require_leases,omitempty"`
	}{value, gates}
	return c.do(ctx, &request{method: http.MethodPut, path: entryPath(path), body: encode(in)}, nil)
}

func entryPath(path string) string {
	return "/store" + (&url.URL{Path: "/" + strings.TrimPrefix(path, "/")}).EscapedPath()
}
