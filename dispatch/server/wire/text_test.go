package wire_test

import (
	"errors"
	"testing"

	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/registry"
)

func TestTextThatIsNotUTF8IsNoJSON(t *testing.T) {
	_, err := wire.Marshal(map[string]any{"key": "caf\xe9"})
	if wrong, ok := errors.AsType[*registry.ArgumentError](err); !ok || wrong.Argument != "key" || wrong.Error() != "key must be valid UTF-8" {
		t.Errorf("%v", err)
	}
	if text, err := wire.Marshal(map[string]any{"key": wire.Informative("caf\xe9")}); err != nil || string(text) != "{\"key\":\"caf\ufffd\"}" {
		t.Errorf("%s %v", text, err)
	}
}
