package launcher

import (
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// forLeads are the tools that a worker would only be refused.
var forLeads = map[string]bool{
	"spawn_sublead": true, "spawn_worker": true, "actor_status": true,
	"actor_wait": true, "actor_cancel": true, "lease_revoke": true,
}

// toolsFor are Leasehold's tools for a role.
func toolsFor(role string) (names []string) {
	for _, t := range tools.Agents() {
		if dispatch.Role(role).Leads() || !forLeads[t.Name] {
			names = append(names, t.Name)
		}
	}
	return names
}
