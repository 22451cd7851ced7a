package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd starts an etcd of one member in this process, and measures its mutex. Its
// clients connect over the loopback. It has no queue.
func startEtcd(ctx context.Context, p place) (_ *contender, err error) {
	dir, err := p.own(nil)
	if err != nil {
		return nil, err
	}
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel = filepath.Join(dir, "data"), "fatal"
	for _, urls := range []struct{ listen, advertise *[]url.URL }{
		{&cfg.ListenClientUrls, &cfg.AdvertiseClientUrls}, {&cfg.ListenPeerUrls, &cfg.AdvertisePeerUrls},
	} {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		*urls.listen = []url.URL{{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}}
		*urls.advertise = *urls.listen
	}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, err
	}
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		server.Close()
		return nil, errors.New("etcd is not up")
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{cfg.ListenClientUrls[0].Host}, DialTimeout: 10 * time.Second})
	if err != nil {
		server.Close()
		return nil, err
	}
	var sessions [maxWorkers]*concurrency.Session
	for i := range sessions {
		if sessions[i], err = concurrency.NewSession(client, concurrency.WithTTL(60)); err != nil {
			server.Close()
			return nil, err
		}
	}
	take := func(ctx context.Context, worker int, key string) (int, error) {
		m := concurrency.NewMutex(sessions[worker], "/"+key)
		if err := m.Lock(ctx); err != nil {
			return 0, err
		}
		return 1, m.Unlock(ctx)
	}
	return &contender{
		version: fmt.Sprintf("etcd %s, one member, concurrency.Mutex", module("go.etcd.io/etcd/server/v3")),
		steps: map[operation]step{
			takeOwn:   func(ctx context.Context, w int) (int, error) { return take(ctx, w, fmt.Sprint("own", w)) },
			takeTurns: func(ctx context.Context, w int) (int, error) { return take(ctx, w, "baton") },
		},
		close: func() error {
			err := client.Close()
			server.Close()
			return err
		},
	}, nil
}
