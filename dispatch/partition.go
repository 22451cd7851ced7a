package dispatch

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// A Partition is one of several states that servers share. Runs are spread over
// the partitions by name, and a run is wholly in one of them: its tree, stores,
// leases, tasks and sessions. The tokens of operators and readers, who are in no
// tree, are in the first partition. The zero Partition is a state that has all
// runs.
type Partition struct {
	Number, Of int
	First      Settled // runs that are in the first partition, whatever their names
}

// Settled has the names of runs that are in the first partition. It may be nil.
type Settled map[string]struct{}

// SettledOf returns a Settled with these names.
func SettledOf(runs []string) Settled {
	s := make(Settled, len(runs))
	for _, run := range runs {
		s[run] = struct{}{}
	}
	return s
}

// PartitionOf returns the number of the partition that has a run.
func (s Settled) PartitionOf(run string, of int) int {
	if _, first := s[run]; first {
		return 0
	}
	return PartitionOf(run, of)
}

// PartitionOf returns the number of the partition that has a run, if there are
// of partitions and the run is not [Settled]. Stored data depends on it, so the result for a name must never
// change.
func PartitionOf(run string, of int) int {
	if of <= 1 {
		return 0
	}
	sum := sha256.Sum256([]byte(run)) // of a hash like FNV the low bits are not spread
	return int(binary.BigEndian.Uint64(sum[:]) % uint64(of))
}

// check returns an error if a run belongs to another partition.
func (p Partition) check(run string) error {
	if at := p.First.PartitionOf(run, p.Of); at != p.Number {
		return fmt.Errorf("run %q is in partition %d, and this is partition %d of %d", run, at, p.Number, p.Of)
	}
	return nil
}

// PartitionOfSecret returns the number of the partition that issued a token or
// handle. The number is written before the secret. The secrets of the first
// partition, and of a state without partitions, have no number. The result for
// any other text has no meaning.
func PartitionOfSecret(text string) int {
	number, _ := cutNumber(text[min(len(text), markSize):])
	return number
}

// cutNumber separates the number of a partition from the rest of a secret
// without its mark. The number is 0 if there is none.
func cutNumber(text string) (number int, rest string) {
	digits, rest, ok := strings.Cut(text, ".")
	n, err := strconv.ParseUint(digits, 10, 15)
	if !ok || err != nil {
		return 0, text
	}
	return int(n), rest
}
