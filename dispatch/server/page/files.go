package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
)

//go:embed static
var static embed.FS

// policy lets the page load and run its own files and connect to its own
// server, and nothing else. No other page may embed it in a frame, where it
// could trick the user into clicks.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// A file is one of the page's files.
type file struct {
	body []byte
	kind string
	etag string
}

// files has all files, by name.
var files = func() map[string]file {
	all := make(map[string]file)
	list, err := static.ReadDir("static")
	if err != nil {
		panic(err)
	}
	for _, entry := range list {
		body, err := fs.ReadFile(static, path.Join("static", entry.Name()))
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(body)
		all[entry.Name()] = file{body, kinds[path.Ext(entry.Name())], `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	return all
}()

// Index is the name of the document.
const Index = "index.html"

// Secure sets the security headers of an answer of the page.
func Secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
}

// ServeFile answers with a file of the page.
func ServeFile(w http.ResponseWriter, r *http.Request, name string) {
	Secure(w.Header())
	f, ok := files[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", f.kind)
	w.Header().Set("Cache-Control", "no-cache") // so that a new version is used at once
	w.Header().Set("ETag", f.etag)
	if r.Header.Get("If-None-Match") == f.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(f.body)
}
