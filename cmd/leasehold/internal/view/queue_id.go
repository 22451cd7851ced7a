package view

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/queue"
)

// minTaskEnd is the least number of digits that can name a task.
const minTaskEnd = 4

// maxSearched limits how many tasks of each state are searched for the end of an id.
const maxSearched = 1000

// noTask is the refusal that the daemon would give.
func noTask(message string) error {
	refusal := &client.Refusal{Code: "NOT_FOUND", Message: message}
	refusal.Object, _ = json.Marshal(map[string]string{"code": refusal.Code, "message": message}) // strings have JSON
	return refusal
}

// taskNamed returns the id of a task that is given by its id, or by the end of its id.
// Narrow tables show only the end: ids begin with a time, so their ends tell them apart.
func taskNamed(cmd *cobra.Command, run, given string) (string, error) {
	end := strings.TrimPrefix(given, "…")
	if _, err := uuid.Parse(end); err == nil {
		return end, nil
	}
	if len(end) < minTaskEnd || strings.Trim(end, "0123456789abcdef-") != "" {
		return "", exit.Usage(exit.Hint(fmt.Errorf("%q is not the id of a task, nor its last %d or more characters", given, minTaskEnd),
			"leasehold queue list and leasehold queue dead show the ids"))
	}
	found := make(map[string]string) // by id: the state and queue
	for _, state := range []string{liveTasks, queue.Completed.String(), queue.Failed.String(), queue.Dead.String(), queue.Cancelled.String()} {
		answer, err := connection.AsOperator(cmd, false, "operator_queue_list", map[string]any{"run": run, "state": state, "limit": maxSearched})
		if err != nil {
			return "", err
		}
		list, err := connection.Decode[struct{ Tasks []shownTask }](answer.Object)
		if err != nil {
			return "", err
		}
		for _, t := range list.Tasks {
			if strings.HasSuffix(t.TaskID, end) {
				found[t.TaskID] = t.State + " in queue " + t.Queue
			}
		}
	}
	if len(found) == 0 {
		return "", exit.Hint(noTask(fmt.Sprintf("no task of run %s has an id that ends in %s", run, end)),
			"leasehold queue list --run %s shows the tasks that are not finished; of each state the first %d are searched", run, maxSearched)
	}
	var all []string
	for id, what := range found {
		if len(found) == 1 {
			return id, nil
		}
		all = append(all, id+" ("+what+")")
	}
	slices.Sort(all)
	return "", exit.Usagef("the ids of several tasks end in %s: %s", end, strings.Join(all[:min(len(all), 5)], ", "))
}
