package launcher

import "context"

// Patience is how long a daemon may be away. LastPatience is how long once the run has
// been killed.
const (
	Patience     = patience
	LastPatience = lastPatience
)

// A Connection is what a link needs of a daemon.
type Connection = connection

// A Link is a link.
type Link struct{ *link }

// NewLink makes a link.
func NewLink(dial func(context.Context) (Connection, error), attach func(context.Context, Connection) error, told func(bool), hurry <-chan struct{}) *Link {
	l := newLink(dial, hurry)
	l.attach, l.told = attach, told
	return &Link{l}
}

// Open makes the first connection.
func (l *Link) Open(ctx context.Context) error { return l.open(ctx) }

// Call calls a tool whose answer does not matter.
func (l *Link) Call(ctx context.Context, tool string) error { return l.call(ctx, tool, nil, nil) }

// Wait is Call for a tool that waits.
func (l *Link) Wait(ctx context.Context, tool string) error { return l.wait(ctx, tool, nil, nil) }

// TellThrough has an event told by a teller of its own, to the end.
func TellThrough(d *Directory, tell func(Event), interrupts <-chan struct{}, events ...Event) {
	t := newTeller(tell)
	for _, e := range events {
		t.event(d, e)
	}
	t.close(interrupts)
}

// LastRevision is where a dispatcher that goes on with a run begins.
func LastRevision(d *Directory) (uint64, error) { return d.lastRevision() }

// Again returns the directory as another process has it.
func (d *Directory) Again() *Directory { return &Directory{Path: d.Path} }

// An Output is what a process writes to.
type Output struct{ *output }

// OpenOutput opens an output that is full with max bytes.
func OpenOutput(name string, max int64) (Output, error) {
	o, err := openOutput(name)
	o.max = max
	return Output{o}, err
}

// Rotate starts the file over if it is full.
func (o Output) Rotate() error { return o.rotate() }

func (d *Directory) Left() bool {
	_, left := d.left()
	return left
}
