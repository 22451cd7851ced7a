package setup

import (
	"slices"
	"strings"
)

// A Drift says which files are not as this version of setup would leave them.
type Drift struct {
	Files   []string
	Command string // writes them
}

// Drifts looks at the clients that setup has configured on this machine: for this user,
// and for the project whose top is given. It reads their files and writes nothing.
func Drifts(state, top string) (list []Drift, err error) {
	r, err := readRecord(state)
	if err != nil {
		return nil, err
	}
	for _, scope := range []string{"user", top} {
		command := []string{"leasehold setup"}
		var chosen []client
		for _, c := range clients {
			for _, w := range r.Files {
				if w.Scope == scope && c.name != git.name && slices.Contains(w.Clients, c.name) { // git's hooks may be of another repository
					chosen, command = append(chosen, c), append(command, c.name)
					break
				}
			}
		}
		if len(chosen) == 0 {
			continue
		}
		project := scope != "user"
		if project {
			command = append(command, "--project")
		}
		m, err := thisMachine(top, project)
		if err != nil {
			return nil, err
		}
		d := Drift{Command: strings.Join(command, " ")}
		for _, p := range planSetup(m, chosen, project) {
			if p.writes() {
				d.Files = append(d.Files, p.shown)
			}
		}
		if len(d.Files) > 0 {
			list = append(list, d)
		}
	}
	return list, nil
}
