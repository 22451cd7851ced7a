package connection

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/leasehold/leasehold/dispatch/client"
)

// toolOfRuns answers in pages, each with a limited number of actors.
const toolOfRuns = "operator_tree"

// A runsPage is a page of runs. A run may begin on one page and continue on the
// next.
type runsPage struct {
	Runs []map[string]json.RawMessage `json:"runs"`
	Next string                       `json:"next,omitempty"`

	Ended   int   `json:"ended,omitempty"`   // runs left out, in the first page
	Missing []int `json:"missing,omitempty"` // partitions
}

// theRest adds the following pages to the first page of runs.
func theRest(ctx context.Context, c *client.Client, args any, first client.Answer) (client.Answer, error) {
	all, err := Decode[runsPage](first.Object)
	if err != nil || all.Next == "" {
		return first, err
	}
	asked := make(map[string]any)
	if given, ok := args.(map[string]any); ok {
		maps.Copy(asked, given)
	}
	for all.Next != "" {
		asked["after"] = all.Next
		answer, err := c.Call(ctx, toolOfRuns, asked)
		if err != nil {
			return answer, err
		}
		page, err := Decode[runsPage](answer.Object)
		if err != nil {
			return answer, err
		}
		if err := all.add(page); err != nil {
			return answer, err
		}
	}
	first.Object, err = json.Marshal(all)
	return first, err
}

func (p *runsPage) add(page runsPage) error {
	if n := len(p.Runs); n > 0 && len(page.Runs) > 0 && string(p.Runs[n-1]["run_id"]) == string(page.Runs[0]["run_id"]) {
		before, err := Decode[[]json.RawMessage](p.Runs[n-1]["actors"])
		if err != nil {
			return err
		}
		more, err := Decode[[]json.RawMessage](page.Runs[0]["actors"])
		if err != nil {
			return err
		}
		if p.Runs[n-1]["actors"], err = json.Marshal(append(before, more...)); err != nil {
			return err
		}
		page.Runs = page.Runs[1:]
	}
	p.Runs, p.Next = append(p.Runs, page.Runs...), page.Next
	for _, partition := range page.Missing {
		if !slices.Contains(p.Missing, partition) {
			p.Missing = append(p.Missing, partition)
		}
	}
	return nil
}
