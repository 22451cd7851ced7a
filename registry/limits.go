package registry

import "strings"

// nextSteps says what to do at a limit, by the beginning of its name.
var nextSteps = []struct{ which, next string }{
	{"leases of one actor", "release some first; lease_list shows them"},
	{"leases in this scope", "release some first; lease_list shows them"},
	{"waits of one actor", "let one end first"},
	{"waiters for one lease", "try again later"},
	{"leases that one write requires", "require fewer"},
	{"leases below the directories of a request", "ask for a smaller directory"},
	{"leases that share a key of a request", "try again later"},

	{"bytes in a value", "store it in a file and write its path here"},
	{"entries in the store of this layer", "delete some first with kv_delete"},
	{"bytes in the store of this layer", "delete some first with kv_delete"},

	{"bytes of a payload", "store it in a file and send its path"},
	{"bytes of a result", "store it in a file and send its path"},
	{"bytes of all ", "send fewer in one call"},
	{"tasks of queue ", "wait until some are finished, or cancel some"},
	{"bytes of tasks of queue ", "wait until some are finished, or cancel some"},
	{"queues of this run", "use one of those that queue_stats shows"},
	{"queues that have tasks", "use one of those that queue_stats shows"},
	{"claims of one actor that wait", "name several queues in one claim"},
	{"claims that wait at queue ", "try again later"},

	{"depth of the tree", "do the work yourself"},
	{"actors of one ", "wait for one to end, or do without"},
	{"bytes in a result", "store it in a file and send its path"},
	{"bytes in a message", "store it in a file and send its path"},
	{"unread messages ", "wait until some are read"},
	{"holders of one lease that a message goes to", "send to their paths"},
	{"tokens of operators and readers", "revoke one first"},

	{"subscriptions of one client", "unsubscribe from one first"},
	{"streams of one session", "close one first"},
	{"HTTP sessions of one actor", "end one first with DELETE"},
	{"HTTP sessions", "try again later"},
	{"HTTP connections of one actor", "close one first"},
	{"connections of one actor", "end some clients first, or give each agent a token of its own (leasehold actor add)"},
	{"connections of one ", "end some clients first"},
	{"connections to the daemon", "end some clients"},
	{"waiting calls in the daemon", "try again later"},
	{"waiting calls of one ", "let one end first"},
	{"bytes of waiting calls in the daemon", "try again later"},
	{"bytes of waiting calls of one ", "let one end first"},
	{"calls under way on one connection", "wait for an answer first"},
	{"bytes of calls under way in the daemon", "try again later"},
	{"bytes of calls under way ", "wait for an answer first"},
}

// next returns what the caller can do, as the end of a text.
func (e *LimitError) next() string {
	if e.Next != "" {
		return "; " + e.Next
	}
	for _, s := range nextSteps {
		if strings.HasPrefix(e.Which, s.which) {
			return "; " + s.next
		}
	}
	return ""
}
