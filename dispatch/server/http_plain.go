package server

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/leasehold/leasehold/dispatch/server/api"
)

// plainTimeout is how long a client may take to read that it must use TLS.
const plainTimeout = time.Second

// refusePlain answers a client that speaks plain HTTP where TLS is expected. net/http
// would do so, but it does not see that a [webConn] has TLS below it.
func refusePlain(e tls.RecordHeaderError) {
	if e.Conn == nil || bytes.ContainsFunc(e.RecordHeader[:], func(r rune) bool { return r < ' ' || r > '~' }) {
		return // it is no HTTP
	}
	_ = e.Conn.SetDeadline(time.Now().Add(plainTimeout))
	a := api.Problem(http.StatusBadRequest, "INVALID_ARGUMENT", "this port is served over TLS: the URL must begin with https://")
	_, err := fmt.Fprintf(e.Conn, "HTTP/1.1 400 Bad Request\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", a.Type, len(a.Body), a.Body)
	if half, ok := e.Conn.(interface{ CloseWrite() error }); ok && err == nil && half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, e.Conn, 64<<10) // a connection that is closed with unread data is reset, and the answer is lost
	}
}
