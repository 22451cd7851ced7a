package simulation

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// A web is a client's way over HTTP. Its session outlasts connections.
//
// It writes and reads HTTP by itself: what net/http's client has read when a
// call is given up is up to the order of its goroutines.
type web struct {
	dial       func() (net.Conn, error)
	token      string
	perRequest bool

	mu      sync.Mutex
	open    []*link
	idle    []*link
	streams []*link
}

// A link is one connection.
type link struct {
	net.Conn
	br *bufio.Reader
}

func newWeb(token string, perRequest bool, dial func() (net.Conn, error)) *web {
	return &web{dial: dial, token: token, perRequest: perRequest}
}

// link returns a connection for one request.
func (w *web) link() (*link, error) {
	w.mu.Lock()
	if n := len(w.idle); n > 0 {
		l := w.idle[n-1]
		w.idle = w.idle[:n-1]
		w.mu.Unlock()
		return l, nil
	}
	w.mu.Unlock()
	nc, err := w.dial()
	if err != nil {
		return nil, errBroken
	}
	l := &link{nc, bufio.NewReaderSize(nc, window)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = append(w.open, l)
	return l, nil
}

// done gives a connection back, which may serve another request.
func (w *web) done(l *link, again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch n := slices.Index(w.open, l); {
	case n < 0: // it was cut
	case again && !w.perRequest:
		w.idle = append(w.idle, l)
		return
	default:
		w.open = slices.Delete(w.open, n, n+1)
	}
	l.Close()
}

// hangUp closes a connection, in the midst of a call or after it.
func (w *web) hangUp(l *link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	is := func(o *link) bool { return o == l }
	w.open, w.idle = slices.DeleteFunc(w.open, is), slices.DeleteFunc(w.idle, is)
	l.Close()
}

// cut breaks all connections that are open.
func (w *web) cut() {
	w.mu.Lock()
	open := w.open
	w.open, w.idle = nil, nil
	w.mu.Unlock()
	for _, l := range open {
		l.Close()
	}
}

// openStream opens a stream for what the daemon tells unasked, and reads it.
func (w *web) openStream(handle string) error {
	l, err := w.link()
	if err != nil {
		return err
	}
	resp, err := w.send(l, http.MethodGet, handle, nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		w.hangUp(l)
		return errBroken
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams = append(w.streams, l)
	go func() {
		_, _ = io.Copy(io.Discard, resp.Body)
		w.hangUp(l)
	}()
	return nil
}

func (w *web) closeStreams() {
	w.mu.Lock()
	streams := w.streams
	w.streams = nil
	w.mu.Unlock()
	for _, l := range streams {
		w.hangUp(l)
	}
}

// initialize opens a session.
func (w *web) initialize() (handle string, err error) {
	const hello = `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"s","version":"1"}}}`
	_, header, err := w.post("", []byte(hello))
	if err != nil {
		return "", err
	}
	handle = header.Get("Mcp-Session-Id")
	_, _, err = w.post(handle, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	if errors.Is(err, errOver) {
		err = errBroken
	}
	return handle, err
}

// post sends a message and reads the answer to it, if there is one.
func (w *web) post(handle string, body []byte) (answer []byte, header http.Header, err error) {
	l, err := w.link()
	if err != nil {
		return nil, nil, err
	}
	return w.postOn(l, handle, body)
}

func (w *web) postOn(l *link, handle string, body []byte) (answer []byte, header http.Header, err error) {
	again := false
	defer func() { w.done(l, again) }()
	resp, err := w.send(l, http.MethodPost, handle, body)
	if err != nil {
		return nil, nil, errBroken
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
	case http.StatusNotFound:
		err = errOver
	case http.StatusServiceUnavailable:
		err = errBroken
	default:
		text, _ := io.ReadAll(resp.Body)
		return nil, nil, errors.New(resp.Status + ": " + string(text))
	}
	if resp.StatusCode != http.StatusOK || strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		text, broke := io.ReadAll(resp.Body)
		if broke != nil {
			return nil, nil, errBroken
		}
		again = true
		if resp.StatusCode != http.StatusOK {
			text = nil
		}
		return text, resp.Header, err
	}
	for events := bufio.NewReader(resp.Body); ; {
		data, err := readEvent(events)
		if errors.Is(err, io.EOF) {
			again = true
			return nil, resp.Header, nil // it had no answer
		}
		if err != nil {
			return nil, nil, errBroken
		}
		var m struct{ ID json.RawMessage }
		if json.Unmarshal(data, &m) == nil && len(m.ID) > 0 {
			if !w.perRequest { // else it closes the connection at once, as some do
				_, broke := io.Copy(io.Discard, events)
				again = broke == nil
			}
			return data, resp.Header, nil
		}
	}
}

// send sends a request and reads the head of the response.
func (w *web) send(l *link, method, handle string, body []byte) (*http.Response, error) {
	req, err := http.NewRequest(method, "http://localhost/mcp", bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Close = w.perRequest
	req.Header.Set("Authorization", "Bearer "+w.token)
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	if handle != "" {
		req.Header.Set("Mcp-Session-Id", handle)
		req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	var message bytes.Buffer
	_ = req.Write(&message)
	if _, err := l.Write(message.Bytes()); err != nil {
		return nil, err
	}
	return http.ReadResponse(l.br, req)
}

// readEvent reads the data of one event of a stream.
func readEvent(br *bufio.Reader) (data []byte, err error) {
	for {
		line, err := br.ReadString('\n')
		switch text := strings.TrimSuffix(line, "\n"); {
		case err != nil:
			return nil, err
		case text == "" && data != nil:
			return data, nil
		default:
			if text, ok := strings.CutPrefix(text, "data: "); ok {
				data = append(data, text...)
			}
		}
	}
}

// ask sends a request and waits for its answer.
func (w *web) ask(handle string, r request) ([]byte, error) {
	l, err := w.link()
	if err != nil {
		return nil, err
	}
	type result struct {
		line []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		line, _, err := w.postOn(l, handle, r.line())
		if err == nil && line == nil {
			err = errBroken // the daemon ends, or the call was cancelled
		}
		done <- result{line, err}
	}()
	var giveUp <-chan time.Time
	if r.giveUp > 0 {
		giveUp = time.After(r.giveUp)
	}
	select {
	case got := <-done:
		return got.line, got.err
	case <-giveUp:
	}
	select {
	case got := <-done:
		return got.line, got.err
	default:
	}
	given := errCancelled
	if !r.breaks {
		if _, _, err := w.post(handle, r.cancellation()); err != nil {
			given = errUntold
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.hangUp(l)
	// Whoever has read the whole answer before it closed the connection has it.
	if got := <-done; got.err == nil && r.breaks {
		return got.line, nil
	}
	return nil, given
}
