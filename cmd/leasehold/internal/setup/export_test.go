package setup

import "testing"

// BetweenReadAndWrite has do run after a file was read and before it is written.
func BetweenReadAndWrite(t *testing.T, do func()) {
	beforeWrite = do
	t.Cleanup(func() { beforeWrite = func() {} })
}

// Protocol is the text for models.
const Protocol = protocol

// A Member is a name and its value in a file that others write by hand.
type Member struct {
	Name  string
	Value any
}

// Object is a value with one member.
func Object(name string, value any) any { return object{{name: name, value: value}} }

// Shipped are the two files of a client's plugin or extension: its manifest, with the
// server that setup writes for a project, and its hooks.
func Shipped(t *testing.T, name string, manifest []Member) (main, hooks string) {
	t.Helper()
	chosen, err := byName([]string{name})
	if err != nil {
		t.Fatal(err)
	}
	server, events := object{}, config{}
	for _, f := range chosen[0].files(machine{command: "leasehold", getenv: func(string) string { return "" }}, true) {
		if f.want.entry != nil {
			for _, s := range f.want.members {
				if s.name != "trust" { // which only the user can give
					server = append(server, s)
				}
			}
		}
		for _, l := range f.want.elements {
			if l.path[0] == "hooks" {
				events.elements = append(events.elements, l)
			}
		}
	}
	members := object{}
	for _, m := range manifest {
		members = append(members, setting{name: m.Name, value: m.Value})
	}
	members = append(members, setting{name: "mcpServers", value: object{{name: "leasehold", value: server}}})
	edits, err := jsonText{}.ensure(nil, events)
	if err != nil {
		t.Fatal(err)
	}
	var written []byte
	for _, e := range edits {
		written = e.apply(written)
	}
	return renderJSON(members, "\n", "", "  ") + "\n", string(written)
}
