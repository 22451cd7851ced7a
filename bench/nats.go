package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const addressFile = "address"

// serveNATS runs a NATS server with JetStream. Debian's version is too old: it has no
// "sync always".
func serveNATS(ctx context.Context, dir string, _ io.Writer) error {
	conf := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, `
host: 127.0.0.1
port: -1
jetstream { store_dir: %q, sync_interval: always }
`, filepath.Join(dir, "store")), 0o600); err != nil {
		return err
	}
	opts, err := natsserver.ProcessConfigFile(conf)
	if err != nil {
		return err
	}
	opts.NoSigs = true
	s, err := natsserver.NewServer(opts)
	if err != nil {
		return err
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(10 * time.Second) {
		return errors.New("the server is not ready")
	}
	// Rename the complete file into place, because the reader may look early.
	address := filepath.Join(dir, addressFile)
	if err := os.WriteFile(address+".new", []byte(s.ClientURL()), 0o600); err != nil {
		return err
	}
	if err := os.Rename(address+".new", address); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// startNATS starts a work queue of JetStream in files. It syncs every write before it
// acknowledges it: the message and, when that is acknowledged, its removal. It writes
// later which messages a consumer was given.
func startNATS(ctx context.Context, p place) (_ *contender, err error) {
	dir, err := p.own(nil)
	if err != nil {
		return nil, err
	}
	d, err := startSelf("nats", dir)
	if err != nil {
		return nil, err
	}
	var conns [maxWorkers]*nats.Conn
	stop := func() error {
		for _, nc := range conns {
			if nc != nil {
				nc.Close()
			}
		}
		return d.stop(syscall.SIGTERM)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, stop())
		}
	}()
	var address []byte
	err = d.up(ctx, func(context.Context) (err error) {
		address, err = os.ReadFile(filepath.Join(dir, addressFile))
		return err
	})
	if err != nil {
		return nil, err
	}
	q := &natsQueue{}
	for i := range conns {
		if conns[i], err = nats.Connect(string(address)); err != nil {
			return nil, err
		}
		if q.js[i], err = jetstream.New(conns[i]); err != nil {
			return nil, err
		}
		if i == 0 {
			_, err = q.js[0].CreateStream(ctx, jetstream.StreamConfig{
				Name: queueName, Subjects: []string{queueName},
				Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
			})
			if err != nil {
				return nil, err
			}
			_, err = q.js[0].CreateConsumer(ctx, queueName, jetstream.ConsumerConfig{
				Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, AckWait: claimTTL, MaxAckPending: 2 * many * maxWorkers,
			})
			if err != nil {
				return nil, err
			}
		}
		consumer, err := q.js[i].Consumer(ctx, queueName, "worker")
		if err != nil {
			return nil, err
		}
		q.consumers[i] = consumer
		if q.next[i], err = consumer.Messages(jetstream.PullMaxMessages(1)); err != nil {
			return nil, err
		}
	}
	return &contender{
		version: fmt.Sprintf("nats-server %s, nats.go %s", strings.TrimPrefix(conns[0].ConnectedServerVersion(), "v"), module("github.com/nats-io/nats.go")),
		steps: map[operation]step{
			enqueue:     q.enqueue,
			cycle:       q.cycle,
			enqueueMany: q.enqueueMany,
			cycleMany:   q.cycleMany,
		},
		close: stop,
	}, nil
}

// natsQueue gives each worker a connection and an iterator.
type natsQueue struct {
	js        [maxWorkers]jetstream.JetStream
	consumers [maxWorkers]jetstream.Consumer
	next      [maxWorkers]jetstream.MessagesContext
}

func (q *natsQueue) enqueue(ctx context.Context, w int) (int, error) {
	_, err := q.js[w].Publish(ctx, queueName, payload)
	return 1, err
}

// enqueueMany publishes all messages, and then waits for all acknowledgements.
func (q *natsQueue) enqueueMany(ctx context.Context, w int) (int, error) {
	acks := make([]jetstream.PubAckFuture, many)
	for i := range acks {
		var err error
		if acks[i], err = q.js[w].PublishAsync(queueName, payload); err != nil {
			return 0, err
		}
	}
	for _, a := range acks {
		select {
		case <-a.Ok():
		case err := <-a.Err():
			return 0, err
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	return many, nil
}

func (q *natsQueue) cycle(ctx context.Context, w int) (int, error) {
	m, err := q.next[w].Next(jetstream.NextMaxWait(20 * time.Millisecond))
	if errors.Is(err, nats.ErrTimeout) {
		return 0, errDry
	}
	if err != nil {
		return 0, err
	}
	return 1, m.DoubleAck(ctx) // which waits for the answer
}

func (q *natsQueue) cycleMany(ctx context.Context, w int) (n int, err error) {
	batch, err := q.consumers[w].Fetch(many, jetstream.FetchMaxWait(20*time.Millisecond))
	if err != nil {
		return 0, err
	}
	for m := range batch.Messages() {
		if err := m.DoubleAck(ctx); err != nil {
			return n, err
		}
		n++
	}
	if n == 0 && batch.Error() == nil {
		return 0, errDry
	}
	return n, batch.Error()
}
