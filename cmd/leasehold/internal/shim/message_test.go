package shim

import (
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/server/wire"
)

func TestClientName(t *testing.T) {
	long := strings.Repeat("x", 70)
	for line, want := range map[string]string{
		`,"params":{"clientInfo":{"name":"claude-code"}}`:                                    "claude-code",
		`,"params":{"clientInfo":{"name":"Visual Studio Code (Insiders)"}}`:                  "Visual-Studio-Code-Insiders",
		`,"params":{"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"gemini → cli"}}}`: "gemini-cli",
		`,"params":{"clientInfo":{"name":"..."}}`:                                            "client",
		`,"params":{"clientInfo":{"name":"self"}}`:                                           "client-self",
		`,"params":{"clientInfo":{"name":"6ba7b810-9dad-11d1-80b4-00c04fd430c8"}}`:           "client-6ba7b810-9dad-11d1-80b4-00c04fd430c8",
		`,"params":{"clientInfo":{"name":"` + long + `"}}`:                                   long[:64],
		`,"params":[]`: "client",
		``:             "client",
	} {
		m, fault := wire.Parse([]byte(`{"jsonrpc":"2.0","id":0,"method":"initialize"` + line + `}`))
		if got := clientName(m, ""); fault != nil || got != want {
			t.Errorf("%s: %q %v, want %q", line, got, fault, want)
		}
	}
}

// With its directory the name says where a client works, and stays a name.
func TestClientNameSaysWhere(t *testing.T) {
	long := strings.Repeat("x", 70)
	for _, test := range []struct{ client, dir, want string }{
		{"claude-code", "/home/me/shop", "claude-code-shop"},
		{"codex-mcp-client", "/home/me/Meine Notizen (alt)", "codex-mcp-client-Meine-Notizen-alt"},
		{"self", "/home/me/shop", "client-self-shop"},
		{"opencode", "/", "opencode"},
		{"opencode", "/日本", "opencode"},
		{long, "/" + long, long[:40] + "-" + long[:23]},
	} {
		m, fault := wire.Parse([]byte(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientInfo":{"name":"` + test.client + `"}}}`))
		if got := clientName(m, test.dir); fault != nil || got != test.want {
			t.Errorf("%s in %s: %q %v, want %q", test.client, test.dir, got, fault, test.want)
		}
	}
}
