// Package address has the rule that the command and the client library share: which URLs of
// a server a token may be sent to.
package address

import (
	"net/netip"
	"net/url"
	"strings"
)

// Exposes reports whether others could read a token on its way to a server: its URL begins
// with http:// and is not one of this machine.
func Exposes(u *url.URL) bool {
	ip, err := netip.ParseAddr(u.Hostname())
	here := strings.EqualFold(u.Hostname(), "localhost") || err == nil && ip.IsLoopback()
	return u.Scheme == "http" && !here
}
