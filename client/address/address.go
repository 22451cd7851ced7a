// Package address has the rules about a server's URL that the command and the client library
// share: where a token may be sent, and when a server stands still.
package address

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// StandsStill reports whether a server does not even say before ctx ends or the client gives
// up that it runs. One whose machine refuses a connection, or whose proxy answers, does not
// stand still.
func StandsStill(ctx context.Context, client *http.Client, healthz string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, healthz, http.NoBody)
	if err != nil {
		return false // it was a URL for all other requests
	}
	resp, err := client.Do(r)
	if err == nil {
		_ = resp.Body.Close()
	}
	late, ok := errors.AsType[net.Error](err)
	return ok && late.Timeout()
}

// Exposes reports whether others could read a token on its way to a server: its URL begins
// with http:// and is not one of this machine.
func Exposes(u *url.URL) bool {
	ip, err := netip.ParseAddr(u.Hostname())
	here := strings.EqualFold(u.Hostname(), "localhost") || err == nil && ip.IsLoopback()
	return u.Scheme == "http" && !here
}
