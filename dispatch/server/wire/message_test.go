package wire_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch/server/wire"
)

func parse(t *testing.T, line string) wire.Message {
	t.Helper()
	m, fault := wire.Parse([]byte(line))
	if fault != nil {
		t.Fatalf("%s: %+v", line, fault)
	}
	return m
}

func TestResentIsTheSameCallWithLessOfItsWait(t *testing.T) {
	for line, want := range map[string]string{
		`{"id":1}`:                              `{"params":{"_meta":{"leasehold/resent":true}},"id":1}`,
		`{"params":{"a":9007199254740993}}`:     `{"params":{"_meta":{"leasehold/resent":true},"a":9007199254740993}}`,
		`{"params":{"_meta":{"t":"é<","u":1}}}`: `{"params":{"_meta":{"leasehold/resent":true,"t":"é<","u":1}}}`,
		`{"params":[1]}`:                        `{"params":[1]}`,
		`{"params":{"_meta":7}}`:                `{"params":{"_meta":7}}`,
		`{"params":{"arguments":{"k":"v","wait_secs": 50},"_meta":{}}}`:  `{"params":{"arguments":{"k":"v","wait_secs": 38},"_meta":{"leasehold/resent":true}}}`,
		`{"params":{"arguments":{"wait_secs":12},"_meta":{}}}`:           `{"params":{"arguments":{"wait_secs":1},"_meta":{"leasehold/resent":true}}}`,
		`{"params":{"arguments":{"wait_secs":0.5},"_meta":{}}}`:          `{"params":{"arguments":{"wait_secs":0.5},"_meta":{"leasehold/resent":true}}}`,
		`{"params":{"arguments":{"wait_secs":"50"},"_meta":{}}}`:         `{"params":{"arguments":{"wait_secs":38},"_meta":{"leasehold/resent":true}}}`,
		`{"params":{"arguments":{"wait_secs":"x"},"_meta":{}}}`:          `{"params":{"arguments":{"wait_secs":"x"},"_meta":{"leasehold/resent":true}}}`,
		`{"params":{"arguments":[],"_meta":{"leasehold/resent":false}}}`: `{"params":{"arguments":[],"_meta":{"leasehold/resent":true}}}`,
	} {
		if got := string(wire.Resent([]byte(line), 12*time.Second)); got != want {
			t.Errorf("%s:\n%s, want\n%s", line, got, want)
		}
	}
}

func TestACallKeepsItsPrintWhenItIsSentAgain(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":"<&>","wait_secs":50,"b":{"c":[1, 2]}}}}`
	line := []byte(call)
	first := parse(t, call)
	print := first.Print()
	for spent := range 3 {
		line = wire.Resent(line, time.Duration(spent)*10*time.Second)
		if m := parse(t, string(line)); m.Print() != print || !m.Params.Meta.Resent {
			t.Errorf("sent again: print %x, want %x: %s", m.Print(), print, line)
		}
	}
	seen := map[uint64]string{print: call}
	for _, other := range []string{
		`{"name":"u","arguments":{"a":"<&>","b":{"c":[1, 2]}}}`,
		`{"name":"t","arguments":{"b":"<&>","a":{"c":[1, 2]}}}`,
		`{"name":"t","arguments":{"a":"<&>"}}`,
		`{"name":"t","arguments":{}}`,
		`{"name":"t","arguments":{"a":"<&>","b":{"c":[1, 3]}}}`,
	} {
		m := parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+other+`}`)
		if was, ok := seen[m.Print()]; ok {
			t.Errorf("%s has the print of %s", other, was)
		}
		seen[m.Print()] = other
	}
}

// Whether a call waits is known before its arguments are decoded.
func TestWhetherACallWaits(t *testing.T) {
	for wait, want := range map[string]bool{`0`: false, `"0"`: false, `5`: true, `"5"`: true, `0.5`: true} {
		for _, byDefault := range []bool{false, true} {
			m := wire.Call("1", "t", json.RawMessage(`{"wait_secs":`+wait+`}`), "")
			if got := m.Waits(byDefault); got != want {
				t.Errorf("wait_secs %s, by default %v: %v", wait, byDefault, got)
			}
		}
	}
	for _, arguments := range []string{`{}`, `{"wait_secs":null}`, `{"wait_secs":"null"}`} {
		for _, byDefault := range []bool{false, true} {
			m := wire.Call("1", "t", json.RawMessage(arguments), "")
			if got := m.Waits(byDefault); got != byDefault {
				t.Errorf("%s, by default %v: %v", arguments, byDefault, got)
			}
		}
	}
}

func TestAnotherID(t *testing.T) {
	if got := string(wire.WithID([]byte(`{"method":"m","id": 7 ,"x":"<"}`), "a\"b")); got != `{"method":"m","id": "a\"b" ,"x":"<"}` {
		t.Error(got)
	}
}

func TestTheIDOfAMessageWithoutItsEnd(t *testing.T) {
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":"xxx`: "7",
		`{"id":"a b","x`: `"a b"`,
		`{"method":"ping","params":{"a":[1,{"id":2}]},"id" : -1.5 ,`: "-1.5",
		`{"params":"xxx`:     "",
		`{"id":"xxx`:         "",
		`{"id":{},"id":1`:    "",
		`{"params":{"id":1,`: "",
		`[{"id":1,`:          "",
		``:                   "",
	} {
		if got := string(wire.LeadingID([]byte(line))); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestKeysTellNumbersFromStrings(t *testing.T) {
	keys := make(map[string]bool)
	for _, id := range []string{`1`, `"1"`, `"a"`, `1.5`} {
		keys[wire.Key(json.RawMessage(id))] = true
	}
	if len(keys) != 4 || wire.Key(json.RawMessage(`"\u0061"`)) != wire.Key(json.RawMessage(`"a"`)) {
		t.Errorf("keys: %v", keys)
	}
	for _, none := range []string{``, `null`, `{}`, `[1]`, `true`} {
		if key := wire.Key(json.RawMessage(none)); key != "" {
			t.Errorf("%s: key %q", none, key)
		}
	}
}

// The name of a call becomes part of a row's key, whatever its client sends.
func TestTheNamesOfCallsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	names := make(map[string]bool)
	for _, m := range []string{
		`"id":"` + long + `"`, `"id":"` + long + `y"`,
		`"id":1,"params":{"_meta":{"leasehold/call":"` + long + `"}}`, `"id":1`, `"id":1,"params":{"_meta":{"leasehold/call":"1"}}`,
	} {
		name := parse(t, `{"jsonrpc":"2.0","method":"tools/call",`+m+`}`)
		names[name.CallName()] = true
		if n := len(name.CallName()); n > 64 {
			t.Errorf("a name of %d bytes", n)
		}
	}
	if len(names) != 5 {
		t.Errorf("%d names of 5 calls", len(names))
	}
}

func TestWhatIsNoMessage(t *testing.T) {
	for line, want := range map[string]string{
		`[]`:                            "batches are not served: send one message at a time",
		`{`:                             "not a JSON message: unexpected end of JSON input",
		`5`:                             `jsonrpc must be "2.0"`,
		`{"jsonrpc":"2.0","id":{}}`:     "id must be a string or a number",
		`{"jsonrpc":"1.0","id":1}`:      `jsonrpc must be "2.0"`,
		`{"jsonrpc":"2.0","result":{}}`: "neither a request nor a response",

		`{"jsonrpc":"2.0","id":1,"method":5}`:  "method must be a string, and not empty",
		`{"jsonrpc":"2.0","id":1,"method":""}`: "method must be a string, and not empty",
	} {
		if _, fault := wire.Parse([]byte(line)); fault == nil || fault.Message != want {
			t.Errorf("%s: %+v, want %q", line, fault, want)
		}
	}
}
