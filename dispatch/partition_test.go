package dispatch_test

import (
	"fmt"
	"testing"

	"github.com/leasehold/leasehold/dispatch"
)

// Where a run is must never change: a state was spread by it.
func TestRunsStayInTheirPartitions(t *testing.T) {
	for _, c := range []struct {
		run      string
		of, want int
	}{
		{"one", 1, 0}, {"one", 0, 0}, {"one", 4, 0}, {"two", 4, 2}, {"a-run", 16, 1}, {"leasehold", 64, 29},
	} {
		if got := dispatch.PartitionOf(c.run, c.of); got != c.want {
			t.Errorf("run %q is in partition %d of %d, and was in %d", c.run, got, c.of, c.want)
		}
	}
}

// Names that people give are spread about evenly.
func TestRunsAreSpreadEvenly(t *testing.T) {
	for _, of := range []int{2, 4, 12, 16} {
		for _, form := range []string{"run-%d", "build-%03d", "%d", "feature/%d/agent"} {
			in := make([]int, of)
			for n := range 100 * of {
				in[dispatch.PartitionOf(fmt.Sprintf(form, n), of)]++
			}
			for p, n := range in {
				if n < 60 || n > 150 {
					t.Errorf("%q: partition %d of %d has %d of %d runs", form, p, of, n, 100*of)
				}
			}
		}
	}
}

// A text that is no secret of ours is in the first partition, which refuses it.
func TestSecretsNameTheirPartition(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "lht": 0, "lht_": 0, "lht_abc": 0, "lht_3.abc": 3, "lhs_15.abc": 15, "lht_-1.abc": 0, "lht_99999999.abc": 0, "lht_x.abc": 0, "lht_.abc": 0,
	} {
		if got := dispatch.PartitionOfSecret(text); got != want {
			t.Errorf("%q is in partition %d, want %d", text, got, want)
		}
	}
}
