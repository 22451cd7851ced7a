package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"time"
	"unsafe"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/engine/postgres"
)

const socketName = "sock"

// serveLeasehold runs the daemon with one more tool, which does nothing.
func serveLeasehold(ctx context.Context, dir string, _ io.Writer) (err error) {
	var eng engine.Engine
	if dsn := os.Getenv(databaseEnv); dsn != "" {
		eng, err = postgres.Open(ctx, postgres.Options{DSN: dsn, SingleNode: true, Partition: daemonPartition})
	} else {
		eng, err = pebble.Open(pebble.Options{Dir: filepath.Join(dir, "db")})
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	state, err := dispatch.Open(ctx, eng, dispatch.Options{})
	if err != nil {
		return err
	}
	s := server.New(state, server.Options{})
	addEmptyTool(s)
	ln, err := server.ListenSocket(filepath.Join(dir, socketName))
	if err != nil {
		return err
	}
	tended := make(chan error, 1)
	go func() { tended <- state.Tend(ctx) }()
	return errors.Join(s.ServeSocket(ctx, ln), <-tended)
}

// addEmptyTool gives agents a tool that does nothing. The daemon has no way to add a
// tool, and should not get one for this alone. addEmptyTool panics if the server no
// longer keeps its tools in the expected way.
func addEmptyTool(s *server.Server) {
	homes := open(reflect.ValueOf(s).Elem().FieldByName("homes")).FieldByName("now")
	home := homes.MapIndex(homes.MapKeys()[0]).Elem() // a state on one machine has no other
	table := open(home.FieldByName("agents").Elem().FieldByName("tools"))
	empty := reflect.New(table.Type().Elem()).Elem()
	open(empty.FieldByName("call")).Set(reflect.ValueOf(func(context.Context, *dispatch.Session, tools.Arguments) tools.Reply {
		return tools.Reply{}
	}))
	table.SetMapIndex(reflect.ValueOf("empty"), empty)
}

// open returns an unexported field of another package's struct as a settable value.
func open(field reflect.Value) reflect.Value {
	return reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
}

// startSocket starts Leasehold as a daemon. Its clients are sessions of one run, each on
// its own connection.
func startSocket(ctx context.Context, p place) (*contender, error) {
	dir, err := p.own(nil)
	if err != nil {
		return nil, err
	}
	d, err := startSelf("leasehold", dir)
	if err != nil {
		return nil, err
	}
	var clients [maxWorkers]*client
	err = d.up(ctx, func(context.Context) (err error) {
		clients[0], err = dial(filepath.Join(dir, socketName), 0)
		return err
	})
	for i := 1; i < maxWorkers && err == nil; i++ {
		clients[i], err = dial(filepath.Join(dir, socketName), i)
	}
	stop := func() error {
		for _, c := range clients {
			if c != nil {
				c.nc.Close()
			}
		}
		return d.stop(syscall.SIGTERM)
	}
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return &contender{
		version: "the working tree, by unix socket",
		steps: map[operation]step{
			takeOwn:   func(_ context.Context, w int) (int, error) { return clients[w].take(fmt.Sprint("own", w)) },
			takeTurns: func(_ context.Context, w int) (int, error) { return clients[w].take("baton") },
			enqueue:   func(_ context.Context, w int) (int, error) { return clients[w].enqueue() },
			cycle:     func(_ context.Context, w int) (int, error) { return clients[w].cycle() },
			emptyTool: func(_ context.Context, w int) (int, error) { return 1, clients[w].call("empty", `{}`, nil) },
		},
		cpu:   func() time.Duration { return cpuTimeOf(d.cmd.Process.Pid) },
		close: stop,
	}, nil
}

// A client does as little as possible, so that bench measures the daemon.
type client struct {
	nc net.Conn
	br *bufio.Reader
	id int
}

func dial(path string, worker int) (*client, error) {
	nc, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	br, _, err := server.Greet(nc, server.Hello{Run: "bench", Name: fmt.Sprint("W", worker+1)})
	if err != nil {
		nc.Close()
		return nil, err
	}
	c := &client{nc: nc, br: br}
	if _, err := c.request("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"0"}}`); err != nil {
		return nil, err
	}
	_, err = fmt.Fprintln(nc, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c, err
}

func (c *client) request(method, params string) ([]byte, error) {
	c.id++
	if _, err := fmt.Fprintf(c.nc, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", c.id, method, params); err != nil {
		return nil, err
	}
	for {
		line, err := c.br.ReadSlice('\n')
		if err != nil || !bytes.HasPrefix(line, []byte(`{"jsonrpc":"2.0","method":`)) {
			return line, err
		}
		// a notice that another client waits for this one's lease
	}
}

// call calls a tool. It decodes the structured content of the answer into answer, unless
// that is nil.
func (c *client) call(tool, arguments string, answer any) error {
	line, err := c.request("tools/call", `{"name":"`+tool+`","arguments":`+arguments+`}`)
	if err != nil {
		return err
	}
	if bytes.Contains(line, []byte(`"isError":true`)) || bytes.Contains(line, []byte(`"error":`)) {
		return fmt.Errorf("%s: %s", tool, line)
	}
	if answer == nil {
		return nil
	}
	var m struct {
		Result struct{ StructuredContent json.RawMessage }
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return err
	}
	return json.Unmarshal(m.Result.StructuredContent, answer)
}

// take acquires a lease, in line if need be, and releases it.
func (c *client) take(key string) (int, error) {
	var got struct {
		LeaseID string `json:"lease_id"`
	}
	if err := c.call("run_lease_acquire", `{"key":"`+key+`","wait_secs":50}`, &got); err != nil {
		return 0, err
	}
	return 1, c.call("run_lease_release", `{"lease_id":"`+got.LeaseID+`"}`, nil)
}

func (c *client) enqueue() (int, error) {
	return 1, c.call("task_enqueue", `{"queue":"`+queueName+`","payload":`+string(payload)+`}`, nil)
}

func (c *client) cycle() (int, error) {
	var got struct {
		Tasks []struct {
			TaskID string `json:"task_id"`
			Token  uint64 `json:"token"`
		} `json:"tasks"`
	}
	if err := c.call("task_claim", `{"queues":["`+queueName+`"],"ttl_secs":60}`, &got); err != nil {
		return 0, err
	}
	if len(got.Tasks) == 0 {
		return 0, errDry
	}
	t := got.Tasks[0]
	return 1, c.call("task_submit", fmt.Sprintf(`{"task_id":%q,"token":%d,"status":"completed","result":{}}`, t.TaskID, t.Token), nil)
}
