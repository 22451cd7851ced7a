package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/pebble"
)

// Where the wall clock is behind a file of the state, as on a board whose clock has no
// battery, doctor names the file and its time.
func TestAWallClockBehindTheState(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	file := filepath.Join(home, "leasehold", "db", "000002.log")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(24 * time.Hour)
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chtimes(file, later, later)); err != nil {
		t.Fatal(err)
	}
	want := file + " is of " + later.UTC().Format(time.RFC3339)
	if found := examineClock(); len(found) != 1 || found[0].Level != fault || !strings.HasSuffix(found[0].What, want) {
		t.Errorf("%+v, want one that ends with %s", found, want)
	}
}

func TestClocksAreCompared(t *testing.T) {
	wall := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	before := clocks{BootID: "a", RunningMS: 100_000, Wall: wall}
	after := clocks{BootID: "a", RunningMS: 103_000, Wall: wall.Add(3 * time.Second)}
	for name, c := range map[string]struct {
		theirs clocks
		want   []string
	}{
		"alike":                  {clocks{"a", 101_000, wall.Add(time.Second), 0}, []string{"ok"}},
		"a little off":           {clocks{"a", 99_100, wall.Add(-900 * time.Millisecond), 900}, []string{"ok"}},
		"another machine":        {clocks{"b", 7, wall.Add(time.Second), 0}, []string{"note the boot id is b there and a here"}},
		"a boot id is not known": {clocks{"", 101_000, wall, 0}, []string{"ok"}},
		"a time namespace":       {clocks{"a", 5_101_000, wall, 0}, []string{"fault 1h23m18s ahead of this one's: one of them runs in a container"}},
		"one that began later":   {clocks{"a", 90_000, wall, 0}, []string{"fault clock since boot is 10s behind this one's"}},
		"another wall clock":     {clocks{"a", 101_000, wall.Add(-time.Hour), 0}, []string{"fault wall clock is 1h0m0s behind this one's: 2030-01-02T02:04:05Z there, 2030-01-02T03:04:08Z here"}},
		"a step back":            {clocks{"a", 101_000, wall, -60_000}, []string{"note was set back by 1m0s since the daemon started"}},
		"both":                   {clocks{"b", 7, wall.Add(time.Hour), 60_000}, []string{"note boot id", "fault wall clock is 59m57s ahead", "note set forward by 1m0s"}},
	} {
		found := compareClocks(c.theirs, before, after)
		if len(found) != len(c.want) {
			t.Errorf("%s: found %+v", name, found)
			continue
		}
		for i, f := range found {
			level, words, _ := strings.Cut(c.want[i], " ")
			if string(f.Level) != level || !strings.Contains(f.What, words) || (f.Level == fine) != (f.Do == "") {
				t.Errorf("%s: found %+v, want %s", name, f, c.want[i])
			}
		}
	}
}

// TestDoctorComparesItsClocksWithADaemons whose clocks are shifted against those
// of this machine.
func TestDoctorComparesItsClocksWithADaemons(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Chdir(t.TempDir())
	for name, c := range map[string]struct {
		shift func(c *clock.Clock, wall *time.Duration)
		later time.Duration // by how much the wall clock is set once the daemon runs
		want  string        // level, and the words that must be there
	}{
		"nothing":        {func(*clock.Clock, *time.Duration) {}, 0, "ok clocks agree"},
		"the wall clock": {func(_ *clock.Clock, wall *time.Duration) { *wall = -2 * time.Hour }, 0, "fault daemon's wall clock is 2h0m0"},
		"a step":         {func(_ *clock.Clock, wall *time.Duration) { *wall = -time.Hour }, time.Hour, "note was set forward by 1h0m0"},
		"the boot":       {func(c *clock.Clock, _ *time.Duration) { c.Boot = "another" }, 0, "note boot id is another there"},
		"a time namespace": {func(c *clock.Clock, _ *time.Duration) {
			c.Running = func() time.Duration { return clock.Running() + time.Hour }
		}, 0, "fault time namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			machine, wall := clock.Machine(), time.Duration(0)
			machine.Wall = func() time.Time { return time.Now().Add(wall) }
			machine.Sleeps = false // so nothing reads the clock while it is set
			c.shift(&machine, &wall)
			socket := serve(t, machine)
			wall += c.later
			out := new(bytes.Buffer)
			cmd := NewCommand()
			cmd.SetArgs([]string{"--socket", socket, "--json"})
			cmd.SetOut(out)
			cmd.SilenceUsage, cmd.SilenceErrors = true, true
			if err := cmd.ExecuteContext(t.Context()); err != nil && !errors.Is(err, exit.ErrReported) {
				t.Fatal(err)
			}
			var told struct{ Checks []finding }
			if err := json.Unmarshal(out.Bytes(), &told); err != nil {
				t.Fatal(err)
			}
			level, words, _ := strings.Cut(c.want, " ")
			for _, f := range told.Checks {
				if f.Check == "clock" && string(f.Level) == level && strings.Contains(f.What, words) {
					return
				}
			}
			t.Errorf("no %s among %s", c.want, out)
		})
	}
}

// serve runs a daemon that reads these clocks, until the test ends.
func serve(t *testing.T, c clock.Clock) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "lh") // the test's own is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	eng, err := pebble.Open(pebble.Options{Dir: filepath.Join(dir, "db"), Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	state, err := dispatch.Open(t.Context(), eng, dispatch.Options{Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "sock")
	listener, err := server.ListenSocket(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- server.New(state, server.Options{}).ServeSocket(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-served, eng.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return socket
}
