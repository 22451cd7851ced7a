package postgres

import (
	"context"

	"github.com/leasehold/leasehold/engine/memory"
)

// A round is the batches that one statement appends to the log: those that
// arrived during the previous round.
type round struct {
	sequence int64
	through  uint64 // the number of the last batch
	batches  []byte
	done     chan struct{} // closed when the round is in the log, or has failed
	err      error         // set before done is closed
}

func newRound(sequence int64, through uint64) *round {
	return &round{sequence: sequence, through: through, done: make(chan struct{})}
}

// Keep implements [memory.Store]: only the database survives the process.
func (s *store) Keep([]memory.Write) bool { return false }

// Append implements [memory.Store].
func (s *store) Append(batch memory.Batch) (number uint64, err error) {
	if err := s.Failed(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.open
	if len(batch.Writes) == 0 {
		return r.through, nil // it waits for everything before it
	}
	if len(r.batches) == 0 {
		s.rouse()
	}
	r.batches = s.active.add(r.batches, batch.Writes)
	r.through++
	return r.through, nil
}

// Wait implements [memory.Store]. A batch that survives the process also
// survives the machine.
func (s *store) Wait(number uint64, _ bool) error {
	s.mu.Lock()
	r := s.open
	if s.taken != nil && number <= s.taken.through {
		r = s.taken
	}
	done := number <= s.durable
	s.mu.Unlock()
	if done {
		return nil
	}
	<-r.done
	return r.err
}

// rouse wakes the writer.
func (s *store) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// write appends rounds to the log, one after the other, until the store closes.
func (s *store) write() {
	for {
		select {
		case <-s.wake:
		case <-s.ctx.Done():
		}
		r, f := s.take()
		if r == nil {
			if s.ctx.Err() != nil {
				return
			}
			continue
		}
		if r.err = s.Failed(); r.err == nil {
			r.err = s.append(r)
		}
		if r.err != nil {
			s.Fail(r.err)
		} else {
			s.mu.Lock()
			s.durable = r.through
			s.mu.Unlock()
			if f.frozen != nil {
				s.toFold <- f // does not block: there is one fold at a time
			}
		}
		close(r.done)
	}
}

// take closes the open round for the writer. If the overlay is large, take
// freezes it with that round: the frozen overlay has exactly what was written
// up to the round.
func (s *store) take() (r *round, f fold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open.batches) == 0 {
		return nil, fold{}
	}
	r = s.open
	s.taken = r
	s.open = newRound(r.sequence+1, r.through)
	if s.frozen == nil && s.active.size > s.foldSize {
		f = fold{frozen: s.active, through: r.sequence}
		for sn := range s.waiting {
			f.older = append(f.older, sn)
		}
		s.frozen, s.active = s.active, new(overlay)
	}
	return r, f
}

// If the answer to an append was lost, it is sent again and writes the row
// again; see the package's documentation.
const appendSQL = `INSERT INTO leasehold_log AS l (partition, sequence, epoch, batch)
SELECT partition, $2, epoch, $4 FROM leasehold_partition WHERE partition = $1 AND epoch = $3 FOR SHARE
ON CONFLICT (partition, sequence) DO UPDATE SET batch = excluded.batch WHERE l.epoch = excluded.epoch`

// append writes a round to the log. It continues while the store closes,
// because callers may wait for it.
func (s *store) append(r *round) error {
	return s.patiently(context.WithoutCancel(s.ctx), func(ctx context.Context) error {
		if s.conn == nil || s.conn.IsClosed() {
			if err := s.connect(ctx); err != nil {
				return err
			}
		}
		tag, err := s.conn.Exec(ctx, appendSQL, s.partition, r.sequence, s.epoch, r.batches)
		if err == nil && tag.RowsAffected() == 0 {
			err = ErrSuperseded
		}
		if err == nil {
			s.logged = r.sequence
		}
		return err
	})
}
