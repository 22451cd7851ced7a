package postgres

import "github.com/leasehold/leasehold/engine/memory"

// A round is the batches of a partition that one statement appends to the log:
// those that arrived during the previous round.
type round struct {
	store    *store
	sequence int64
	through  uint64 // the number of the last batch
	batches  []byte
	fold     fold          // to begin when the round is in the log, if anything is frozen
	done     chan struct{} // closed when the round is in the log, or has failed
	err      error         // set before done is closed
}

func (s *store) newRound(sequence int64, through uint64) *round {
	return &round{store: s, sequence: sequence, through: through, done: make(chan struct{})}
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
		s.conns.writer.add(s)
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

// take closes the open round for the writer. If the overlay is large, take
// freezes it with that round: the frozen overlay has exactly what was written
// up to the round.
func (s *store) take() *round {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.open
	s.taken = r
	s.open = s.newRound(r.sequence+1, r.through)
	if s.frozen == nil && s.active.size > s.foldSize {
		r.fold = fold{frozen: s.active, through: r.sequence}
		for sn := range s.waiting {
			r.fold.older = append(r.fold.older, sn)
		}
		s.frozen, s.active = s.active, new(overlay)
	}
	return r
}

// end notes what became of a round.
func (r *round) end(err error) {
	s := r.store
	if r.err = err; err != nil {
		s.Fail(err)
	} else {
		s.mu.Lock()
		s.durable = r.through
		s.mu.Unlock()
		s.logged = r.sequence
		if r.fold.frozen != nil {
			s.toFold <- r.fold // does not block: there is one fold at a time
		}
	}
	close(r.done)
}
