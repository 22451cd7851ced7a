package server

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch"
)

// checkOrigin refuses requests that a browser sends for a page that is not
// ours. Such a request has a foreign Origin or, if a name was rebound to our
// address, a foreign Host. Our own are the loopback, the address itself, and
// hosts.
func checkOrigin(r *http.Request, hosts []string) error {
	if !ownHost(r, r.Host, hosts) {
		return fmt.Errorf("forbidden: host %q is not this server's; %s", r.Host, adviceOnHosts)
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || !ownHost(r, u.Host, hosts) {
			return fmt.Errorf("forbidden: origin %q is not this server's; %s", origin, adviceOnHosts)
		}
	}
	return nil
}

// GuardHost passes on to next only the requests that name this server as an
// endpoint's must: see [Transport.HTTPHosts].
func GuardHost(hosts []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkOrigin(r, hosts); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

const adviceOnHosts = "if clients reach it by that name, give the name to leasehold serve with --http-host; a proxy must pass the Host header on"

func ownHost(r *http.Request, hostport string, hosts []string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]") // without a port
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		return ip.IsLoopback() || local != nil && local.AddrPort().Addr().Unmap() == ip.Unmap()
	}
	return slices.ContainsFunc(hosts, func(own string) bool { return strings.EqualFold(own, host) })
}

// authenticate returns the actor of the request's token.
func (e *endpoint) authenticate(r *http.Request) (dispatch.Actor, error) {
	return homeOf(r).state.Authenticate(r.Context(), bearer(r))
}

// bearer returns the request's token, or "".
func bearer(r *http.Request) string {
	if token := pageToken(r); token != "" {
		return token
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// checkVersion refuses a protocol version that is not served. Clients of
// 2025-03-26 and earlier send none.
func checkVersion(r *http.Request) error {
	version := r.Header.Get(mcp.HeaderProtocolVersion)
	if version == "" || slices.Contains(legacyVersions, version) {
		return nil
	}
	return fmt.Errorf("protocol version %q is not served; served are %s", version, strings.Join(legacyVersions, ", "))
}

var errNotAcceptable = errors.New("header Accept must allow application/json or text/event-stream")

// accepts reports which of the two forms of an answer the client accepts.
func accepts(r *http.Request) (json, stream bool) {
	values := r.Header.Values("Accept")
	if len(values) == 0 {
		return true, false // it says nothing, so it expects nothing unusual
	}
	for part := range strings.SplitSeq(strings.Join(values, ","), ",") {
		media, _, _ := strings.Cut(part, ";")
		switch strings.ToLower(strings.TrimSpace(media)) {
		case "application/json", "application/*":
			json = true
		case "text/event-stream", "text/*":
			stream = true
		case "*/*":
			json = true
		}
	}
	return json, stream
}
