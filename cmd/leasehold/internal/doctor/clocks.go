package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/build"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/engine/clock"
)

// clocks are readings of the clocks at one instant.
type clocks struct {
	BootID    string    `json:"boot_id"`
	RunningMS int64     `json:"running_ms"`
	Wall      time.Time `json:"wall"`
	SteppedMS int64     `json:"stepped_ms"` // daemon only: how far the wall clock has been set since it started
}

func readClocks() clocks {
	return clocks{BootID: clock.Boot(), RunningMS: clock.Running().Milliseconds(), Wall: time.Now().Round(0)}
}

// askClocks compares the daemon's clocks with those of this process.
func askClocks(ctx context.Context, c *client.Client) []finding {
	before := readClocks()
	answer, err := connection.Call(ctx, c, "operator_clocks", nil)
	after := readClocks()
	var theirs clocks
	if err == nil {
		err = json.Unmarshal(answer.Object, &theirs)
	}
	if err != nil {
		return []finding{{"clock", note, fmt.Sprintf("the daemon does not tell its clocks: %v", err), "leasehold restart, if it is of an earlier version: no session ends by that"}}
	}
	return compareClocks(theirs, before, after)
}

// apart is the smallest difference of two clocks that is reported. Some systems
// slew their wall clocks by almost as much.
const apart = time.Second

// compareClocks checks the daemon's clocks, which were read between two
// readings of ours.
func compareClocks(theirs, before, after clocks) (found []finding) {
	say := func(l level, what, do string) { found = append(found, finding{"clock", l, what, do}) }
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	running := outside(ms(theirs.RunningMS), ms(before.RunningMS), ms(after.RunningMS))
	wall := outside(theirs.Wall.Sub(before.Wall), 0, after.Wall.Sub(before.Wall))
	switch {
	case theirs.BootID != before.BootID && theirs.BootID != "" && before.BootID != "":
		say(note, fmt.Sprintf("the daemon and this command run on different machines or virtual machines: the boot id is %s there and %s here", theirs.BootID, before.BootID),
			"run leasehold where the daemon runs: which process lives is known only there")
	case running.Abs() >= apart:
		say(fault, fmt.Sprintf("the daemon's clock since boot is %s this one's: one of them runs in a container with a time namespace of its own", than(running)),
			"run leasehold and its clients in the daemon's container, or the daemon outside: elsewhere a process that lives may be taken for one that has ended")
	}
	if wall.Abs() >= apart {
		say(fault, fmt.Sprintf("the daemon's wall clock is %s this one's: %s there, %s here", than(wall), theirs.Wall.UTC().Format(time.RFC3339), after.Wall.UTC().Format(time.RFC3339)),
			"set both by one time service; leases, claims and delays do not depend on it, run_at and retention follow the daemon's")
	}
	if by := ms(theirs.SteppedMS); by.Abs() >= apart {
		direction := "forward"
		if by < 0 {
			direction = "back"
		}
		say(note, fmt.Sprintf("the wall clock was set %s by %v since the daemon started; leases, claims and delays have kept their length, run_at and retention follow the new time", direction, by.Abs().Round(time.Second)),
			"if nobody set it on purpose, let one service keep the time, and have it slew the clock")
	}
	if found == nil {
		say(fine, "the daemon's clocks agree with those of this command", "")
	}
	return found
}

// outside returns how far t is before first or after last; 0 if it is between
// them.
func outside(t, first, last time.Duration) time.Duration {
	return min(t-first, 0) + max(t-last, 0)
}

func than(by time.Duration) string {
	if by < 0 {
		return fmt.Sprintf("%v behind", (-by).Round(time.Second))
	}
	return fmt.Sprintf("%v ahead of", by.Round(time.Second))
}

const (
	clockLook  = 200 * time.Millisecond
	clockSlack = 20 * time.Millisecond // more than a slewed clock deviates in that time
	pastSlack  = time.Minute           // for files that were written on a machine with another clock
)

// examineClock compares the wall clock with the monotonic one, and with times
// that are known to be past. Leases, claims and delays use a clock that cannot
// be set; run_at, retention and displayed times follow the wall clock.
func examineClock() []finding {
	began := time.Now()
	time.Sleep(clockLook)
	now := time.Now()
	steady, wall := now.Sub(began), now.Round(0).Sub(began.Round(0))
	if off := wall - steady; off.Abs() > clockSlack {
		return []finding{{
			"clock", fault, fmt.Sprintf("the wall clock went on by %v while %v passed", wall, steady),
			"let one service keep the time, and have it slew the clock; leases, claims and delays do not depend on it, run_at and retention do",
		}}
	}
	if what, past := knownPast(); now.Before(past.Add(-pastSlack)) {
		return []finding{{
			"clock", fault, fmt.Sprintf("the wall clock says %s, and %s is of %s", now.UTC().Format(time.RFC3339), what, past.UTC().Format(time.RFC3339)),
			"set the clock; until then tasks with a run_at come late, and what has ended is kept too long",
		}}
	}
	return []finding{{Check: "clock", Level: fine, What: fmt.Sprintf("wall and monotonic time agree to %v over %v", (wall - steady).Abs().Round(time.Microsecond), clockLook)}}
}

// knownPast returns a time that is certainly past, and what is of that time: this
// program, or a file of the state.
func knownPast() (what string, past time.Time) {
	what, past = "this binary", build.Read().Time
	dir, err := place.State()
	if err != nil {
		return what, past
	}
	db := filepath.Join(dir, "db")
	files, _ := os.ReadDir(db)
	for _, f := range files {
		if info, err := f.Info(); err == nil && info.ModTime().After(past) {
			what, past = filepath.Join(db, f.Name()), info.ModTime()
		}
	}
	return what, past
}
