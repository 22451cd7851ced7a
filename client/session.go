package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// open returns the handle of the session, and opens a session if there is none.
func (c *Client) open(ctx context.Context) (string, error) {
	if handle, err := c.handle(); handle != "" || err != nil {
		return handle, err
	}
	select {
	case c.opening <- struct{}{}:
		defer func() { <-c.opening }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if handle, err := c.handle(); handle != "" || err != nil {
		return handle, err
	}
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, body, err := c.send(bounded, &request{method: http.MethodPost, path: "/sessions"}, "")
	if err != nil {
		return "", err
	}
	var opened struct{ Session string }
	if err := json.Unmarshal(body, &opened); err != nil {
		return "", err
	}
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.session = opened.Session
	}
	c.mu.Unlock()
	if closed { // meanwhile, and Close did not know this session
		_ = c.endSession(bounded, opened.Session) // nothing is held in it
		return "", ErrClosed
	}
	c.log.Debug("a session is open")
	return opened.Session, nil
}

func (c *Client) handle() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return "", ErrClosed
	}
	return c.session, nil
}

// endSession tells a server that a session has ended. If one does not answer, it
// tells the next one.
func (c *Client) endSession(ctx context.Context, handle string) (err error) {
	for range c.servers.list {
		_, _, err = c.send(ctx, &request{method: http.MethodDelete, path: "/session"}, handle)
		if err == nil || ended(err) {
			return nil
		}
	}
	return err
}

// sessionEnded forgets a session, and ends what it held.
func (c *Client) sessionEnded(handle string) {
	c.mu.Lock()
	if c.session == handle {
		c.session = ""
	}
	c.mu.Unlock()
	c.loseAll(handle, ErrSession)
}

func (c *Client) loseAll(handle string, cause error) {
	var lost []*hold
	c.mu.Lock()
	for _, h := range c.holds {
		if h.session == handle {
			lost = append(lost, h)
		}
	}
	c.mu.Unlock()
	for _, h := range lost {
		h.lose(cause)
	}
}

// watch reads the notices to the session until the client is closed. If the
// stream ends and is not opened again within seconds, the server takes the
// process for dead.
func (c *Client) watch() {
	for failures := 0; c.ctx.Err() == nil; {
		handle, err := c.open(c.ctx)
		if err == nil {
			var heard bool
			if heard, err = c.stream(handle); heard {
				failures = 0
			}
		}
		if ended(err) {
			c.sessionEnded(handle)
		}
		if c.ctx.Err() == nil {
			c.log.Debug("the stream of notices ended", "err", err)
			_ = pause(c.ctx, failures) // an error means that the client is closed
			failures++
		}
	}
}

// Servers send something on a stream every 15 s. If one of several has not, it is asked
// after streamQuiet. After streamSilence a server counts as gone.
const (
	streamQuiet   = 20 * time.Second
	streamSilence = 40 * time.Second
)

// stream reads one stream to its end, and reports whether it received anything.
func (c *Client) stream(handle string) (heard bool, err error) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	silence := time.AfterFunc(streamSilence, cancel)
	defer silence.Stop()
	s, number := c.servers.current()
	quiet := time.AfterFunc(streamQuiet, func() {
		if len(c.servers.list) > 1 && s.still(ctx) {
			c.servers.failed(number)
			cancel()
		}
	})
	defer quiet.Stop()
	r := c.httpRequest(ctx, s, &request{method: http.MethodGet, path: "/session/notices"}, handle)
	r.Header.Set("Accept", "text/event-stream")
	resp, err := s.http.Do(r)
	if err != nil {
		c.servers.failed(number)
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		refusal := refusalOf(resp, nil)
		if refusal.Code != sessionOver && refusal.passing() {
			c.servers.failed(number)
		}
		return false, refusal
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		quiet.Reset(streamQuiet)
		silence.Reset(streamSilence)
		heard = true
		if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
			var n notice
			if json.Unmarshal(data, &n) == nil {
				c.noticed(n)
			}
		}
	}
	return heard, lines.Err()
}

const maxEvent = 4 << 20

// A notice is a message from the server to a session.
type notice struct {
	Code   string
	Token  uint64
	Reason string
}

func (c *Client) readNotices(body []byte) {
	var answer struct{ Notices []notice }
	if json.Unmarshal(body, &answer) == nil {
		for _, n := range answer.Notices {
			c.noticed(n)
		}
	}
}

func (c *Client) noticed(n notice) {
	if n.Code != "LEASE_LOST" {
		return
	}
	c.mu.Lock()
	h := c.holds[n.Token]
	if h == nil && c.expecting > 0 {
		c.early[n.Token] = n.Reason
	}
	c.mu.Unlock()
	if h != nil {
		h.lose(lossBecause(n.Reason))
	}
}

// expect is called with how many holds may begin before they are asked for, and
// with -1 for each that has begun or will not begin. A notice may come before
// the answer that it is about, and is remembered until then.
func (c *Client) expect(more int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expecting += more
	if c.expecting == 0 {
		clear(c.early)
	}
}
