package server

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/api"
	"github.com/leasehold/leasehold/dispatch/server/page"
)

// pageKey is the header in which the page sends its key.
const pageKey = "Leasehold-Page"

// pageAccess begins the names of the tokens of browsers.
const pageAccess = "page-"

// maxSignIn is the size of the largest request to sign in, in bytes.
const maxSignIn = 4 << 10

// servePage adds the routes of the page.
func (e *endpoint) servePage(mux *http.ServeMux) {
	file := func(name func(*http.Request) string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if err := e.checkOrigin(r); err != nil {
				http.Error(w, err.Error(), http.StatusForbidden)
				return
			}
			page.ServeFile(w, r, name(r))
		}
	}
	mux.HandleFunc("GET /{$}", file(func(*http.Request) string { return page.Index }))
	mux.HandleFunc("GET /page/{file}", file(func(r *http.Request) string { return r.PathValue("file") }))
	mux.Handle("POST /page/session", e.orPass(http.HandlerFunc(e.signIn)))
	mux.Handle("GET /page/session", e.orPass(e.admitted(e.signedIn)))
	mux.Handle("DELETE /page/session", e.orPass(e.admitted(e.signOut)))
}

// pageToken returns the token of a request of the page, which sends it as a
// cookie and a key. It returns "" for a request that may come from another
// page.
func pageToken(r *http.Request) string {
	key := r.Header.Get(pageKey)
	if key == "" || !sameOrigin(r) || !strings.HasPrefix(r.URL.Path, api.Prefix+"/") && r.URL.Path != "/page/session" {
		return ""
	}
	cookie, err := r.Cookie(page.CookieOf(key))
	if err != nil {
		return ""
	}
	token, err := page.Join(cookie.Value, key)
	if err != nil {
		return ""
	}
	return token
}

// sameOrigin reports whether a request comes from our own page, according to
// the browser.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return false
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || !strings.EqualFold(u.Host, r.Host) {
			return false
		}
	}
	return true
}

// A pageSession tells the page as whom it is signed in.
type pageSession struct {
	Key     string `json:"key,omitempty"` // only in the answer to the sign-in
	Role    string `json:"role"`
	Name    string `json:"name"`
	Version string `json:"version"`
}

// signIn gives a browser a token, as a cookie and a key, for a one-time code or
// for the token of an operator or a reader.
func (e *endpoint) signIn(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Origin") == "" || !sameOrigin(r) || e.checkOrigin(r) != nil {
		e.tell(w, api.Problem(http.StatusForbidden, "FORBIDDEN", "forbidden: only the page itself signs in"))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxSignIn) // anybody may send it
	body, status, err := e.readAPIBody(w, r, uuid.Nil)
	if err != nil {
		e.tell(w, api.Problem(status, codeOf(status), err.Error()))
		return
	}
	var given struct{ Code, Token string }
	if err := json.Unmarshal(body, &given); err != nil {
		e.tell(w, api.Problem(http.StatusBadRequest, "INVALID_ARGUMENT", "the body must be {\"code\": …} or {\"token\": …}"))
		return
	}
	home, _, err := e.server.enter(r.Context(), e.partitionOf(r), true)
	if err != nil {
		e.tell(w, (&refusedRequest{http.StatusServiceUnavailable, err}).answer())
		return
	}
	defer home.guests.Done()
	actor, token, err := e.exchange(r, home.state, given.Code, given.Token)
	if err != nil {
		e.tell(w, api.Refuse(err))
		return
	}
	name, cookie, key := page.Split(token)
	page.Secure(w.Header())
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: cookie, Path: "/", MaxAge: int(page.SignedIn / time.Second), HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: strings.HasPrefix(r.Header.Get("Origin"), "https:"), // a proxy may have ended the TLS
	})
	info := e.pageSession(actor)
	info.Key = key
	e.tell(w, api.Made(info))
}

func (e *endpoint) pageSession(actor dispatch.Actor) pageSession {
	return pageSession{Role: string(actor.Role), Name: actor.Name, Version: e.server.opts.Version}
}

var errCode = errors.New("this link has been used, has expired, or is for a browser of another user; leasehold open --print prints one for any browser")

// foreign reports whether a request comes from a process of another user of this machine.
// Root is no such user, and neither is one whom the kernel does not list: the process may
// be on another machine.
func foreign(r *http.Request) bool {
	at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if at == nil {
		return false
	}
	from, err1 := netip.ParseAddrPort(r.RemoteAddr)
	to, err2 := netip.ParseAddrPort(at.String())
	if err1 != nil || err2 != nil {
		return false // the socket, which asks the kernel in any case
	}
	uid, known := userOf(from, to)
	return known && uid != 0 && uid != os.Getuid()
}

// exchange returns the token for the code or token that a browser has shown.
func (e *endpoint) exchange(r *http.Request, state *dispatch.State, code, token string) (dispatch.Actor, string, error) {
	ctx := r.Context()
	if token == "" {
		clocks, err := state.Clocks(ctx)
		if err != nil {
			return dispatch.Actor{}, "", err
		}
		role, ok := e.server.pages.codes.Redeem(code, func() bool { return foreign(r) }, clocks.Now)
		if !ok {
			return dispatch.Actor{}, "", &codeError{errCode}
		}
		made, token, err := state.IssueAccess(ctx, pageAccess+uuid.NewString()[:8], dispatch.Role(role), page.SignedIn)
		return dispatch.Actor{ID: made.ID, Name: made.Name, Role: made.Role}, token, err
	}
	actor, err := state.Authenticate(ctx, token)
	if err == nil && actor.Role != dispatch.Operator && actor.Role != dispatch.Reader {
		err = &codeError{errors.New("the page is for operators and readers, and this is the token of an actor")}
	}
	return actor, token, err
}

// A codeError refuses a sign-in.
type codeError struct{ error }

func (*codeError) Is(err error) bool { return err == dispatch.ErrUnauthenticated }

// signedIn answers as whom the page is signed in.
func (e *endpoint) signedIn(w http.ResponseWriter, _ *http.Request, actor dispatch.Actor) {
	e.tell(w, api.Found(e.pageSession(actor)))
}

// signOut revokes the token that was issued to the page. A token that the user
// signed in with stays valid.
func (e *endpoint) signOut(w http.ResponseWriter, r *http.Request, actor dispatch.Actor) {
	if strings.HasPrefix(actor.Name, pageAccess) {
		if _, err := homeOf(r).state.RevokeAccess(r.Context(), actor.Name); err != nil {
			e.tell(w, api.Refuse(err))
			return
		}
	}
	if name := page.CookieOf(r.Header.Get(pageKey)); name != "" {
		http.SetCookie(w, &http.Cookie{Name: name, Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	}
	w.WriteHeader(http.StatusNoContent)
}
