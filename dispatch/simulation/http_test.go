package simulation

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A web is a client's way over HTTP. Its session outlasts connections.
type web struct {
	dial   func() (net.Conn, error)
	client *http.Client
	token  string

	mu   sync.Mutex
	open []net.Conn
}

func newWeb(token string, perRequest bool, dial func() (net.Conn, error)) *web {
	w := &web{dial: dial, token: token}
	w.client = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: perRequest,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			nc, err := w.dial()
			if err != nil {
				return nil, err
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.open = append(w.open, nc)
			return nc, nil
		},
	}}
	return w
}

// cut breaks all connections that are open.
func (w *web) cut() {
	w.mu.Lock()
	open := w.open
	w.open = nil
	w.mu.Unlock()
	for _, nc := range open {
		nc.Close()
	}
}

// initialize opens a session.
func (w *web) initialize() (handle string, err error) {
	const hello = `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"s","version":"1"}}}`
	_, header, err := w.post(context.Background(), "", []byte(hello))
	if err != nil {
		return "", err
	}
	handle = header.Get("Mcp-Session-Id")
	_, _, err = w.post(context.Background(), handle, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	if errors.Is(err, errOver) {
		err = errBroken
	}
	return handle, err
}

// post sends a message and reads the answer to it, if there is one.
func (w *web) post(ctx context.Context, handle string, body []byte) (answer []byte, header http.Header, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/mcp", bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.GetBody = nil // nothing is sent again but by the simulation
	req.Header.Set("Authorization", "Bearer "+w.token)
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	if handle != "" {
		req.Header.Set("Mcp-Session-Id", handle)
		req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, nil, errBroken
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusAccepted, http.StatusNoContent:
		return nil, resp.Header, nil
	case http.StatusNotFound:
		return nil, nil, errOver
	case http.StatusServiceUnavailable:
		return nil, nil, errBroken
	default:
		text, _ := io.ReadAll(resp.Body)
		return nil, nil, errors.New(resp.Status + ": " + string(text))
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, nil, errBroken
		}
		return text, resp.Header, nil
	}
	for lines := bufio.NewReader(resp.Body); ; {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil, resp.Header, nil // it had no answer
		}
		if err != nil {
			return nil, nil, errBroken
		}
		data, ok := strings.CutPrefix(line, "data: ")
		var m struct{ ID json.RawMessage }
		if ok && json.Unmarshal([]byte(data), &m) == nil && len(m.ID) > 0 {
			return []byte(data), resp.Header, nil
		}
	}
}

// ask sends a request and waits for its answer.
func (w *web) ask(handle string, r request) ([]byte, error) {
	ctx, hangUp := context.WithCancel(context.Background())
	defer hangUp()
	type result struct {
		line []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		line, _, err := w.post(ctx, handle, r.line())
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
	if !r.breaks {
		_, _, _ = w.post(context.Background(), handle, r.cancellation())
		time.Sleep(100 * time.Millisecond)
	}
	hangUp()
	if got := <-done; got.err == nil && r.breaks {
		return got.line, nil
	}
	return nil, errCancelled
}
