package cluster

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/clock"
)

// Options say how a server takes part in a cluster.
type Options struct {
	Database Database
	Address  string // identifies this process
	Process  string // names this process
	Name     string // of this machine, for people
	Version  string

	// Connections returns the number of clients. It may be nil.
	Connections func() int64
	// Lead leads a partition in a term, if its epoch is still p's. It takes the
	// lead, serves the partition until ctx ends, and then releases everything.
	Lead func(ctx context.Context, p Partition, t *Term) error
	// Gone reports whether a server's process is known to have ended. If it is
	// nil, that is never known.
	Gone func(Server) bool
	// Tell is called when another server has a reason to look. It may be nil,
	// because the server will look anyway.
	Tell func(Server)

	Timing Timing
	Clock  clock.Clock // the zero value is the machine's
	Logf   func(format string, args ...any)
}

// A Member is this server in a cluster.
type Member struct {
	opts Options
	look chan struct{} // contains an element when there is a reason to look

	mu      sync.Mutex
	term    *Term
	last    Look
	leads   map[int64]context.CancelFunc // for each partition that this server leads, takes or gives up: ends the lead
	changed chan struct{}                // closed at the next change of last or leads
	trouble trouble

	// Used only by the loop.
	draining bool                   // outlasts a registration
	failing  bool                   // the database does not answer
	over     map[uuid.UUID]struct{} // own registrations that have ended, and may still be in the database
	seen     map[uuid.UUID]sight
	epochs   map[int64]int64 // the greatest of each partition
}

// A trouble is why this server failed to reach the database or to lead, and when.
type trouble struct {
	err error
	at  time.Duration

	told map[string]time.Duration // what the operator was told lately, and when
}

// A sight is when a number of beats was first seen.
type sight struct {
	beats int64
	at    time.Duration
}

// NewMember returns a member. The caller must call Run.
func NewMember(o Options) *Member {
	o.Timing = o.Timing.withDefaults()
	if o.Clock.Running == nil {
		o.Clock = clock.Machine()
	}
	if o.Connections == nil {
		o.Connections = func() int64 { return 0 }
	}
	return &Member{opts: o, look: make(chan struct{}, 1), over: make(map[uuid.UUID]struct{}), epochs: make(map[int64]int64), leads: make(map[int64]context.CancelFunc), changed: make(chan struct{}), trouble: trouble{told: make(map[string]time.Duration)}}
}

// Poke makes the member look at once.
func (m *Member) Poke() {
	select {
	case m.look <- struct{}{}:
	default:
	}
}

// Leader returns the server that leads a partition, as far as this member
// knows, and whether that is this server. changed is closed when that may have
// changed.
func (m *Member) Leader(partition int64) (s Server, self bool, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.last.Partitions {
		if p.Number != partition {
			continue
		}
		for _, s := range m.last.Servers {
			if s.ID == p.Leader {
				return s, m.term != nil && s.ID == m.term.ID, m.changed
			}
		}
	}
	return Server{}, false, m.changed
}

// Run takes part in the cluster until ctx ends, and then gives up what this
// server leads.
func (m *Member) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := m.serve(ctx); err != nil && ctx.Err() == nil {
			m.report(fmt.Errorf("cluster: %w", err))
			m.pause(ctx)
		}
	}
	return nil
}

// ports are those of this side in errors of connections. Each connection has another.
var ports = regexp.MustCompile(`:\d+->`)

// report notes a trouble and tells the operator, unless the operator was told the
// same lately. Each of several partitions may have its own trouble.
func (m *Member) report(err error) {
	m.mu.Lock()
	t := &m.trouble
	t.err, t.at = err, m.opts.Clock.Running()
	maps.DeleteFunc(t.told, func(_ string, at time.Duration) bool { return t.at-at >= troubled })
	text := ports.ReplaceAllLiteralString(err.Error(), "")
	_, told := t.told[text]
	if !told {
		t.told[text] = t.at
	}
	m.mu.Unlock()
	if !told {
		m.opts.Logf("%v", err)
	}
}

// troubled is how long a trouble counts. What lasts comes again sooner.
const troubled = 30 * time.Second

// Trouble returns why this server lately failed to reach the database or to lead
// a partition, or nil.
func (m *Member) Trouble() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.opts.Clock.Running()-m.trouble.at > troubled {
		return nil
	}
	return m.trouble.err
}

// Reached reports whether this server has lately reached the database, so that it
// may answer what it leads, and knows who leads the rest.
func (m *Member) Reached() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.term != nil && m.term.sure()
}

func (m *Member) pause(ctx context.Context) {
	select {
	case <-m.look:
	case <-time.After(m.opts.Timing.Every):
	case <-ctx.Done():
	}
}

func (m *Member) serve(ctx context.Context) error {
	term := newTerm(m.opts.Clock.Running)
	if err := m.bounded(ctx, func(ctx context.Context) error {
		return m.opts.Database.Register(ctx, Server{ID: term.ID, Address: m.opts.Address, Process: m.opts.Process, Draining: m.draining, Name: m.opts.Name, Version: m.opts.Version})
	}); err != nil {
		m.over[term.ID] = struct{}{} // only the answer may have been lost
		m.failing = true
		return err
	}
	m.note(func() { m.term = term })
	m.seen = make(map[uuid.UUID]sight)
	leading, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var leads sync.WaitGroup
	err := m.beat(ctx, term, func(p Partition) context.CancelFunc {
		its, giveUp := context.WithCancel(leading)
		leads.Go(func() { m.lead(its, leading, p, term) })
		return giveUp
	}, stop)
	term.end() // before waiting for the leads: after an error nothing may be answered
	stop()
	leads.Wait()
	m.over[term.ID] = struct{}{}
	m.note(func() { m.last = m.known(m.last) })
	// The server may have been removed already. If the database cannot be
	// reached, the others remove it, or its next registration does.
	if left := m.bounded(context.WithoutCancel(ctx), func(ctx context.Context) error { return m.opts.Database.Leave(ctx, term.ID) }); left == nil {
		delete(m.over, term.ID)
	}
	m.tellOthers(term.ID)
	return err
}

// bounded calls do with a limit of Timing.Hold.
func (m *Member) bounded(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, m.opts.Timing.Hold)
	defer cancel()
	return do(ctx)
}

// beat sends beats until the term ends, or until ctx has ended and everything
// that this server led is given up.
func (m *Member) beat(ctx context.Context, term *Term, begin func(Partition) context.CancelFunc, stop func()) error {
	now, t := m.opts.Clock.Running, m.opts.Timing
	run, stopping := ctx, false
	for last := now(); ; m.pause(run) {
		if ctx.Err() != nil && !stopping {
			stopping, run = true, context.WithoutCancel(ctx)
			if err := m.bounded(run, func(ctx context.Context) error { return m.opts.Database.Drain(ctx, term.ID) }); err != nil {
				m.opts.Logf("cluster: drain: %v", err)
			}
			stop()
		}
		if stopping && m.idle() {
			return nil
		}
		sent := now()
		var look Look
		var there bool
		err := m.bounded(run, func(ctx context.Context) (err error) {
			look, there, err = m.opts.Database.Beat(ctx, term.ID, m.opts.Connections())
			return err
		})
		switch {
		case err == nil && !there:
			return ErrOver
		case err != nil && run.Err() != nil:
			continue // it is stopping
		case err != nil && now()-last >= t.Quit:
			return fmt.Errorf("%w: %w", ErrOver, err)
		case err != nil:
			m.report(fmt.Errorf("cluster: the database cannot be used: %w", err))
			m.failing = true
			continue
		}
		if m.failing {
			m.opts.Logf("cluster: the database can be used again")
			m.mu.Lock()
			clear(m.trouble.told) // the next outage is another one
			m.mu.Unlock()
		}
		m.failing = false
		term.extend(sent + t.Hold)
		if sent-last > t.Hold {
			clear(m.seen) // looks were missed
		}
		last = sent
		m.recall(look.Partitions)
		m.note(func() { m.last = m.known(look) })
		m.observe(run, term.ID, look, sent)
		if !stopping {
			m.draining = slices.ContainsFunc(look.Servers, func(s Server) bool { return s.ID == term.ID && s.Draining })
			m.act(term.ID, look, begin)
		}
	}
}

// recall sets what was seen of partitions. The epoch of one falls only if the
// database went back in time, and one is missing only if somebody deleted its row.
func (m *Member) recall(partitions []Partition) {
	for i := range partitions {
		p := &partitions[i]
		p.Seen = max(m.epochs[p.Number], p.Epoch)
		m.epochs[p.Number] = p.Seen
		if p.Seen > p.Epoch {
			m.report(fmt.Errorf("cluster: %w: the epoch of partition %d is %d, and was %d", ErrBack, p.Number, p.Epoch, p.Seen))
		}
	}
	for number := range m.epochs {
		if !slices.ContainsFunc(partitions, func(p Partition) bool { return p.Number == number }) {
			m.report(fmt.Errorf("cluster: %w: number %d", ErrGone, number))
		}
	}
}

func (m *Member) idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.leads) == 0
}

// note changes what Leader returns, and signals the change.
func (m *Member) note(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	close(m.changed)
	m.changed = make(chan struct{})
}

// known returns a look without own registrations that have ended: this server
// does not lead under them.
func (m *Member) known(look Look) Look {
	look.Servers = slices.DeleteFunc(slices.Clone(look.Servers), func(s Server) bool { _, over := m.over[s.ID]; return over })
	return look
}

// observe removes the servers that have not beaten for too long. sent is when
// the look was requested; everything in the look is newer.
func (m *Member) observe(ctx context.Context, self uuid.UUID, look Look, sent time.Duration) {
	seen := make(map[uuid.UUID]sight, len(look.Servers))
	for _, s := range look.Servers {
		if s.ID == self {
			continue
		}
		_, over := m.over[s.ID]
		first, known := m.seen[s.ID]
		if !known || first.beats != s.Beats {
			if known && !over && s.Address != "" && s.Address == m.opts.Address {
				m.report(fmt.Errorf("cluster: %w, %s: server %s at %q", ErrTwice, s.Address, s.ID, s.Name))
			}
			first = sight{s.Beats, m.opts.Clock.Running()}
		}
		seen[s.ID] = first
		gone := over || m.opts.Gone != nil && m.opts.Gone(s)
		if !gone && sent-first.at < m.opts.Timing.Dead {
			continue
		}
		if err := m.bounded(ctx, func(ctx context.Context) error { return m.opts.Database.Remove(ctx, s.ID, s.Beats) }); err != nil {
			m.report(fmt.Errorf("cluster: remove server %s at %q, which is gone: %w", s.ID, s.Address, err))
		} else if !over { // else it was this server
			m.opts.Logf("cluster: server %s at %q is gone, and is removed", s.ID, s.Address)
		}
		m.Poke()
	}
	m.seen = seen
	maps.DeleteFunc(m.over, func(id uuid.UUID, _ struct{}) bool { _, there := seen[id]; return !there })
}

// act takes and gives up partitions. A partition that is being given up counts
// as led until that is complete. The database may name this server as the leader
// of one that it does not lead: a statement that takes the lead, and whose answer
// was lost, may have had its effect late, or the database went back in time. Such
// a partition is given up.
func (m *Member) act(self uuid.UUID, look Look, begin func(Partition) context.CancelFunc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	take, give := look.share(self, func(p Partition) bool { return m.leads[p.Number] != nil })
	for _, p := range give {
		if giveUp := m.leads[p.Number]; giveUp != nil {
			giveUp()
		}
	}
	for _, p := range look.Partitions {
		if p.Leader == self && m.leads[p.Number] == nil {
			take = append(take, p)
		}
	}
	for _, p := range take {
		m.leads[p.Number] = begin(p)
	}
}

// lead leads one partition, until ctx ends because the partition is given up, or
// leading ends. One that this server leads only in the database is given up at once.
func (m *Member) lead(ctx, leading context.Context, p Partition, term *Term) {
	var err error
	began := m.opts.Clock.Running()
	if p.Leader != term.ID {
		err = m.opts.Lead(ctx, p, term)
	}
	if err != nil && ctx.Err() == nil {
		m.report(fmt.Errorf("cluster: lead partition %d: %w", p.Number, err))
	}
	m.release(leading, p, term)
	m.tellOthers(term.ID)
	if err != nil && ctx.Err() == nil {
		// One that has just failed would fail again. One that lasted may lead again at once.
		select {
		case <-time.After(began + m.opts.Timing.Hold - m.opts.Clock.Running()):
		case <-ctx.Done():
		}
	}
	m.mu.Lock()
	m.leads[p.Number]() // frees its context
	delete(m.leads, p.Number)
	m.mu.Unlock()
	m.Poke()
}

// release gives up a partition, even if the lead was not taken or nobody knows
// whether it was. Others take it only then, or when this server's beats stop. So
// release tries until it succeeds or the term ends.
func (m *Member) release(leading context.Context, p Partition, term *Term) {
	for {
		err := m.bounded(context.WithoutCancel(leading), func(ctx context.Context) error {
			return m.opts.Database.Release(ctx, p.Number, term.ID)
		})
		if err == nil {
			return
		}
		m.report(fmt.Errorf("cluster: give up partition %d: %w", p.Number, err))
		select {
		case <-time.After(m.opts.Timing.Every):
		case <-leading.Done():
			return
		}
	}
}

// Announce tells the other servers that this one has taken the lead of a
// partition, so that their clients need not wait for their next look.
func (m *Member) Announce() {
	m.mu.Lock()
	term := m.term
	m.mu.Unlock()
	if term != nil {
		m.tellOthers(term.ID)
	}
}

func (m *Member) tellOthers(self uuid.UUID) {
	if m.opts.Tell == nil {
		return
	}
	m.mu.Lock()
	others := m.last.Servers
	m.mu.Unlock()
	for _, s := range others {
		if s.ID != self {
			m.opts.Tell(s)
		}
	}
}
