package pebble

import "testing"

// A power cut may tear the first batch of a log and keep later ones. Those say which
// batch was on disk when they were written, and that may be one of an earlier log.
func TestWhatIsMissingBehindATear(t *testing.T) {
	for name, c := range map[string]struct {
		scan   logScan
		before uint64
		want   bool
	}{
		"the first since it was opened":              {logScan{begun: true, last: 93, next: 95, onDisk: 93}, 0, false},
		"a synced one since it was opened":           {logScan{begun: true, last: 93, next: 96, onDisk: 94}, 0, true},
		"the very first, which was synced":           {logScan{begun: true, last: 0, next: 2, onDisk: 1}, 0, true},
		"the first, behind an earlier log":           {logScan{next: 95, onDisk: 93}, 93, false},
		"a synced one, behind an earlier log":        {logScan{next: 96, onDisk: 94}, 93, true},
		"the first, and earlier logs are in tables":  {logScan{next: 95, onDisk: 93}, 0, false},
		"one of this log, and earlier are in tables": {logScan{next: 95, onDisk: 95}, 0, true},
		"something without a number":                 {logScan{}, 0, false},
	} {
		if got := c.scan.missesSynced(c.before); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
