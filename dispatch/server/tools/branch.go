package tools

import (
	"sync"
	"time"

	"github.com/leasehold/leasehold/dispatch/project"
)

// branchTime is how long an answer waits for the branch of a directory.
const branchTime = time.Second

// lateBranches has the directories on file systems that do not answer, such as those of
// a server that is away.
var lateBranches = struct {
	sync.Mutex
	of map[string]bool
}{of: make(map[string]bool)}

// branchOf returns the branch that is checked out in a directory, or "" if its file system
// does not answer: an agent there must not keep others from an answer. The first call
// waits for branchTime. Later calls do not ask until the file system has answered.
func branchOf(dir string) string {
	late := &lateBranches
	late.Lock()
	is := late.of[dir]
	late.Unlock()
	if is || dir == "" {
		return ""
	}
	answered := false // under the lock
	found := make(chan string, 1)
	go func() { // ends when the file system answers
		branch := project.Branch(dir)
		late.Lock()
		answered = true
		delete(late.of, dir)
		late.Unlock()
		found <- branch
	}()
	limit := time.NewTimer(branchTime)
	defer limit.Stop()
	select {
	case branch := <-found:
		return branch
	case <-limit.C:
		late.Lock()
		defer late.Unlock()
		if !answered {
			late.of[dir] = true
		}
		return ""
	}
}

// branches has the branches of the directories of one answer, which may name one of them a
// thousand times.
type branches map[string]string

func (b branches) of(dir string) string {
	branch, known := b[dir]
	if !known {
		branch = branchOf(dir)
		b[dir] = branch
	}
	return branch
}
