package dispatch

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/leasehold/leasehold/dispatch/process"
)

// A Partition is one of several states that servers share, over which runs are spread
// by name. All of a run is in one: its tree, stores, leases, tasks and sessions. Those
// who are in no tree have their tokens in the first. The zero Partition is a state that
// has all runs.
type Partition struct{ Number, Of int }

// PartitionOf is the partition that has the run of a name, among so many. It never
// changes.
func PartitionOf(run string, of int) int {
	if of <= 1 {
		return 0
	}
	sum := sha256.Sum256([]byte(run)) // of a hash like FNV the low bits are not spread
	return int(binary.BigEndian.Uint64(sum[:]) % uint64(of))
}

// check refuses a run that is in another partition: nothing of it may begin here.
func (p Partition) check(run string) error {
	if at := PartitionOf(run, p.Of); at != p.Number {
		return fmt.Errorf("run %q is in partition %d, and this is partition %d of %d", run, at, p.Number, p.Of)
	}
	return nil
}

// PartitionOfSecret is the partition whose token or handle a text is, if it is one: its
// number stands before the secret. The first has texts without a number, as a state has
// that is whole.
func PartitionOfSecret(text string) int {
	number, _ := cutNumber(text[min(len(text), markSize):])
	return number
}

// cutNumber takes the number of a partition off what follows the mark of a secret.
func cutNumber(text string) (number int, rest string) {
	digits, rest, ok := strings.Cut(text, ".")
	n, err := strconv.ParseUint(digits, 10, 15)
	if !ok || err != nil {
		return 0, text
	}
	return int(n), rest
}

// Knows reports whether a process comes from one that a launcher of this state has
// started. That decides who it is, before anything that it says.
func (s *State) Knows(peer process.Peer) bool { return s.launchers.Kin(peer).Known() }
