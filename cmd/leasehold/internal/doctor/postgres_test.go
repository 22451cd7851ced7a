package doctor

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/cluster"
	"github.com/leasehold/leasehold/engine/postgres"
)

// Each test changes one thing of a database that is well, and names what doctor then says
// of that check, beginning with the level.
func TestWhatIsWrongWithADatabaseIsFound(t *testing.T) {
	server := cluster.Server{ID: uuid.New()}
	led, free := cluster.Partition{Leader: server.ID}, cluster.Partition{}
	for _, c := range []struct {
		check  string
		change func(r *postgres.Report)
		want   []string
	}{
		{"version", func(r *postgres.Report) {}, []string{"ok PostgreSQL 17, timeline 3"}},
		{"version", func(r *postgres.Report) { r.Number = postgres.Oldest*10000 - 1 }, []string{"fault PostgreSQL 17"}},
		{"settings", func(r *postgres.Report) {}, []string{"ok full_page_writes = 'on', autovacuum = 'on', statement_timeout = '0'"}},
		{"settings", func(r *postgres.Report) { r.Settings[0].Value = "off" }, []string{"fault full_page_writes is off", "ok "}},
		{"settings", func(r *postgres.Report) { r.Settings[1].Value = "off" }, []string{"fault autovacuum is off", "ok "}},
		{"settings", func(r *postgres.Report) { r.Settings[2].Value = "60" }, []string{"note statement_timeout is 60 ms: it can end a long read", "ok "}},
		{"settings", func(r *postgres.Report) { r.Settings[2] = postgres.Setting{Name: "idle_session_timeout", Value: "60"} }, []string{"note idle_session_timeout is 60 ms: it ends connections", "ok "}},
		{"durable", func(r *postgres.Report) {}, []string{"ok "}},
		{"durable", func(r *postgres.Report) { r.Durable = errors.New("fsync is off") }, []string{"fault fsync is off"}},
		{"standby", func(r *postgres.Report) { r.Standbys = nil }, []string{"note no standby streams"}},
		{"standby", func(r *postgres.Report) {}, []string{"ok one: streaming, sync, 10s behind"}},
		{"standby", func(r *postgres.Report) { r.Standbys[0].Lag++ }, []string{"note one"}},
		{"standby", func(r *postgres.Report) { r.Standbys[0].State = "catchup" }, []string{"note one: catchup"}},
		{"latency", func(r *postgres.Report) {}, []string{"ok a round trip takes 5ms", "ok a commit takes 20ms: about 50 a second"}},
		{"latency", func(r *postgres.Report) { r.RoundTrip++ }, []string{"note a round trip", "ok "}},
		{"latency", func(r *postgres.Report) { r.Commit++ }, []string{"ok ", "note a commit"}},
		{"latency", func(r *postgres.Report) { r.Commit = 0 }, []string{"ok a round trip"}},
		{"latency", func(r *postgres.Report) { r.Hangs = true }, []string{"ok ", "fault a commit did not end within 5s"}},
		{"tables", func(r *postgres.Report) {}, []string{"ok leasehold_log"}},
		{"tables", func(r *postgres.Report) { r.Tables[0].Live = 0 }, []string{"note leasehold_log"}},
		{"tables", func(r *postgres.Report) { r.Tables[0].Live, r.Tables[0].Dead = 0, 100_000 }, []string{"ok leasehold_log"}},
		{"leaders", func(r *postgres.Report) {}, []string{"ok 1 server leads 2 of 2 partitions"}},
		{"leaders", func(r *postgres.Report) { r.Look.Servers = append(r.Look.Servers, cluster.Server{ID: uuid.New()}) }, []string{"ok 2 servers lead 2 of 2 partitions"}},
		{"leaders", func(r *postgres.Report) { r.Look.Partitions[1] = free }, []string{"fault 1 server leads 1 of 2 partitions"}},
		{"leaders", func(r *postgres.Report) { r.Look.Servers = nil }, []string{"note no server is registered"}},
		{"leaders", func(r *postgres.Report) {
			r.Look.Servers = append(r.Look.Servers, cluster.Server{ID: uuid.New(), Name: "a", Address: "same:1"}, cluster.Server{ID: uuid.New(), Name: "b", Address: "same:1"})
		}, []string{"ok 3 servers lead 2 of 2 partitions", "fault the servers on a and b have the same address, same:1"}},
		{"leaders", func(r *postgres.Report) { r.Schema = 1 }, []string{"fault its schema is version 1, and this program knows 2"}},
		{"leaders", func(r *postgres.Report) { r.Schema = 0 }, []string{"note no server has used this database yet"}},
		{"leaders", func(r *postgres.Report) { r.Schema, r.Elsewhere = 0, errors.New("they are in other") }, []string{"fault they are in other"}},
	} {
		r := postgres.Report{
			Version: "PostgreSQL 17", Number: 170000, Timeline: 3, Schema: 2, Known: 2,
			Settings:  []postgres.Setting{{Name: "full_page_writes", Value: "on"}, {Name: "autovacuum", Value: "on"}, {Name: "statement_timeout", Value: "0"}},
			Standbys:  []postgres.Standby{{Name: "one", State: "streaming", Sync: "sync", Lag: longLag}},
			RoundTrip: slowRoundTrip, Commit: slowCommit,
			Tables: []postgres.Table{{Name: "leasehold_log", Live: 100_001, Dead: 100_001}},
			Look:   cluster.Look{Servers: []cluster.Server{server}, Partitions: []cluster.Partition{led, led}},
		}
		c.change(&r)
		var got []string
		for _, f := range databaseFindings(r) {
			if f.Check == c.check {
				got = append(got, string(f.Level)+" "+f.What)
			}
			if f.Level != fine && f.Do == "" && f.Check != "durable" && r.Elsewhere == nil {
				t.Errorf("nothing is to be done about %+v", f)
			}
		}
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("found %q, want %q", got, c.want)
		}
	}
}
