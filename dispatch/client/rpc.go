package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// errEnded is returned for a request whose connection ends before its answer comes.
var errEnded = fmt.Errorf("the connection to the daemon has ended: %w", net.ErrClosed)

// An rpc makes requests of JSON-RPC on a connection. What the daemon sends besides the
// answers is not read.
//
// mcp-go has a client, too. Its package imports that of its server, which costs each
// process of leasehold 12 ms; see dispatch/server.
type rpc struct {
	nc    net.Conn
	ended chan struct{} // closed once no more answers come
	mute  chan struct{} // closed once nothing more is written
	more  chan struct{} // contains an element when a line was added to unsent

	mu      sync.Mutex
	last    int
	waiting map[string]chan<- response // by id
	unsent  [][]byte                   // lines, oldest first
}

// A response is an answer to a request.
type response struct {
	Result json.RawMessage
	Error  *rpcError
}

// readResponse splits a message that is valid JSON. id is "" if it is no response. The
// result may have many megabytes, so it is neither scanned again nor copied here.
func readResponse(line []byte) (id string, r response) {
	for name, value := range wire.Members(line) {
		switch string(name) {
		case "method":
			return "", response{}
		case "id":
			id = string(value)
		case "result":
			r.Result = value
		case "error":
			_ = json.Unmarshal(value, &r.Error) // a wrong type leaves the fields that can be read
		}
	}
	return id, r
}

// An rpcError is an answer that reports that the daemon cannot serve the request.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *rpcError) Error() string { return e.Message }

// newRPC returns an rpc that reads from in until nc ends.
func newRPC(nc net.Conn, in *bufio.Reader) *rpc {
	c := &rpc{
		nc: nc, ended: make(chan struct{}), mute: make(chan struct{}), more: make(chan struct{}, 1),
		waiting: make(map[string]chan<- response),
	}
	go c.read(in)
	go c.write()
	return c
}

func (c *rpc) read(in *bufio.Reader) {
	defer close(c.ended)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		if !json.Valid(line) {
			continue
		}
		id, r := readResponse(line)
		c.mu.Lock()
		wanted := c.waiting[id]
		delete(c.waiting, id)
		c.mu.Unlock()
		if wanted != nil {
			wanted <- r
		}
	}
}

// close ends the connection, and waits until nothing more is read or written.
func (c *rpc) close() error {
	err := c.nc.Close()
	<-c.ended
	<-c.mute
	return err
}

// call makes a request. If ctx ends before the answer comes, the daemon is told.
func (c *rpc) call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	answer := make(chan response, 1)
	c.mu.Lock()
	c.last++
	id := strconv.Itoa(c.last)
	c.waiting[id] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, id)
	}()
	c.send(wire.Line(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  string          `json:"method"`
		Params  any             `json:"params,omitempty"`
	}{"2.0", json.RawMessage(id), method, params}))
	var r response
	select {
	case r = <-answer:
	case <-c.ended:
		select {
		case r = <-answer: // it was the last that came
		default:
			return nil, errEnded
		}
	case <-ctx.Done():
		c.notify(wire.Cancelled, map[string]any{"requestId": json.RawMessage(id)})
		return nil, ctx.Err()
	}
	if r.Error != nil {
		return nil, r.Error
	}
	return r.Result, nil
}

func (c *rpc) notify(method string, params any) { c.send(wire.Notification(method, params)) }

// send sends a line after those before it. It does not wait, since a daemon that does not
// read must hold up nobody.
func (c *rpc) send(line []byte) {
	c.mu.Lock()
	c.unsent = append(c.unsent, line)
	c.mu.Unlock()
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// write writes what send is given until nc ends. When it fails, reading fails too.
func (c *rpc) write() {
	defer close(c.mute)
	for {
		select {
		case <-c.more:
		case <-c.ended:
			return
		}
		c.mu.Lock()
		lines := c.unsent
		c.unsent = nil
		c.mu.Unlock()
		for _, line := range lines {
			if _, err := c.nc.Write(line); err != nil {
				return
			}
		}
	}
}
