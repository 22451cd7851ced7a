package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/database"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/engine/postgres"
)

const (
	// Above these limits a note is shown. A commit waits for a round trip, the
	// disk and the standbys.
	slowRoundTrip = 5 * time.Millisecond
	slowCommit    = 20 * time.Millisecond
	longLag       = 10 * time.Second
	bloated       = 100_000 // dead rows, if there are more of them than live ones
)

// examineDatabase checks the database that has the state, and changes nothing
// in it.
func examineDatabase(ctx context.Context, db *database.Database) []finding {
	o, err := db.Options()
	if err != nil {
		return []finding{faultOf("database", err)}
	}
	r, err := postgres.Inspect(ctx, o)
	if err != nil {
		f := faultOf("database", database.Explain(err))
		if f.Do == "" {
			f.Do = "see that it runs, that this machine may connect to it, and that the DSN names it"
		}
		return []finding{f}
	}
	return databaseFindings(r)
}

func databaseFindings(r postgres.Report) (found []finding) {
	say := func(level level, check, what, do string) { found = append(found, finding{check, level, what, do}) }
	if r.Number/10000 < postgres.Oldest {
		say(fault, "version", r.Version, fmt.Sprintf("use PostgreSQL %d or later", postgres.Oldest))
	} else {
		say(fine, "version", fmt.Sprintf("%s, timeline %d", r.Version, r.Timeline), "")
	}
	var settings []string
	for _, s := range r.Settings {
		settings = append(settings, fmt.Sprintf("%s = '%s'", s.Name, s.Value))
		switch {
		case s.Name == "full_page_writes" && s.Value == "off":
			say(fault, "settings", "full_page_writes is off: a crash of the machine can spoil the database", "turn it on, unless the file system never tears a page")
		case s.Name == "autovacuum" && s.Value == "off":
			say(fault, "settings", "autovacuum is off: the log's table grows with every commit", "turn it on")
		case strings.HasSuffix(s.Name, "_timeout") && s.Value != "0":
			harm := "can end a long read, which then begins again"
			if s.Name == "idle_session_timeout" {
				harm = "ends connections that wait, which are then made again"
			}
			say(note, "settings", fmt.Sprintf("%s is %s ms: it %s", s.Name, s.Value, harm), "ALTER ROLE … SET "+s.Name+" = 0 for the user of leasehold")
		}
	}
	say(fine, "settings", strings.Join(settings, ", "), "")
	if r.Durable != nil {
		f := faultOf("durable", database.Explain(r.Durable))
		found = append(found, f)
	} else {
		say(fine, "durable", "what it acknowledges outlives what leasehold serve is told to outlive", "")
	}
	found = append(found, standbyFindings(r.Standbys)...)
	found = append(found, latencyFindings(r)...)
	for _, t := range r.Tables {
		level, do := fine, ""
		if t.Dead > bloated && t.Dead > t.Live {
			level, do = note, "VACUUM "+t.Name+"; if it comes back, make autovacuum more eager for this table"
		}
		say(level, "tables", fmt.Sprintf("%s: %s, %d rows, %d dead", t.Name, terminal.Size(t.Bytes), t.Live, t.Dead), do)
	}
	return append(found, leaderFindings(r)...)
}

func standbyFindings(standbys []postgres.Standby) (found []finding) {
	if len(standbys) == 0 {
		return []finding{{"standby", note, "no standby streams, or this user may not see any", "GRANT pg_monitor TO the user of leasehold shows them"}}
	}
	for _, s := range standbys {
		f := finding{Check: "standby", Level: fine, What: fmt.Sprintf("%s: %s, %s, %v behind", s.Name, s.State, s.Sync, s.Lag.Round(time.Millisecond))}
		if s.State != "streaming" || s.Lag > longLag {
			f.Level, f.Do = note, "see its log, its disk and the network to it: commits wait for a synchronous one"
		}
		found = append(found, f)
	}
	return found
}

func latencyFindings(r postgres.Report) []finding {
	trip := finding{Check: "latency", Level: fine, What: fmt.Sprintf("a round trip takes %v", r.RoundTrip.Round(time.Microsecond))}
	if r.RoundTrip > slowRoundTrip {
		trip.Level, trip.Do = note, "run the servers near the database: each commit waits for a round trip"
	}
	if r.Hangs {
		return []finding{trip, {"latency", fault, fmt.Sprintf("a commit did not end within %v: it waits for a synchronous standby, or for the disk of the database", postgres.CommitLimit), "start a standby that synchronous_standby_names names, or see the disk; do not cancel what waits"}}
	}
	if r.Commit == 0 {
		return []finding{trip}
	}
	commit := finding{Check: "latency", Level: fine, What: fmt.Sprintf("a commit takes %v: about %.0f a second for one client alone, and many times that for several", r.Commit.Round(time.Microsecond), 1/r.Commit.Seconds())}
	if r.Commit > slowCommit {
		commit.Level, commit.Do = note, "see the disk of the database, and the way to its synchronous standbys"
	}
	return []finding{trip, commit}
}

func leaderFindings(r postgres.Report) (found []finding) {
	switch {
	case r.Elsewhere != nil:
		return []finding{faultOf("leaders", database.Explain(r.Elsewhere))}
	case r.Schema == 0:
		return []finding{{"leaders", note, "no server has used this database yet", "leasehold serve --postgres makes what it needs there"}}
	case r.Schema != r.Known:
		return []finding{{"leaders", fault, fmt.Sprintf("its schema is version %d, and this program knows %d", r.Schema, r.Known), "use the version that the servers have"}}
	case len(r.Look.Servers) == 0:
		return []finding{{"leaders", note, "no server is registered", "leasehold serve --postgres starts one"}}
	}
	led := 0
	for _, s := range r.Look.Servers {
		led += r.Look.LedBy(s.ID)
	}
	who := "1 server leads"
	if n := len(r.Look.Servers); n > 1 {
		who = fmt.Sprintf("%d servers lead", n)
	}
	f := finding{Check: "leaders", Level: fine, What: fmt.Sprintf("%s %d of %s", who, led, terminal.Plural(len(r.Look.Partitions), "partition"))}
	if led < len(r.Look.Partitions) {
		f.Level, f.Do = fault, "look again in ten seconds; if it lasts, see the logs of the servers"
	}
	found = append(found, f)
	at := make(map[string]string)
	for _, s := range r.Look.Servers {
		if other, twice := at[s.Address]; twice && s.Address != "" {
			found = append(found, finding{
				"leaders", fault, fmt.Sprintf("the servers on %s and %s have the same address, %s", other, s.Name, s.Address),
				"look again in ten seconds; if it lasts, give each server an --advertise at which only it is reached, and not a balancer",
			})
		}
		at[s.Address] = s.Name
	}
	return found
}

// databaseGiven reports whether a database was chosen.
func databaseGiven(db *database.Database) (bool, error) {
	if err := db.Check(false); err != nil {
		return false, exit.Usage(err)
	}
	return db.Given(), nil
}
