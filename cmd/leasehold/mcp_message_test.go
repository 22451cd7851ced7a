package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestClientName(t *testing.T) {
	long := strings.Repeat("x", 70)
	for line, want := range map[string]string{
		`{"params":{"clientInfo":{"name":"claude-code"}}}`:                                    "claude-code",
		`{"params":{"clientInfo":{"name":"Visual Studio Code (Insiders)"}}}`:                  "Visual-Studio-Code-Insiders",
		`{"params":{"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"gemini → cli"}}}}`: "gemini-cli",
		`{"params":{"clientInfo":{"name":"..."}}}`:                                            "client",
		`{"params":{"clientInfo":{"name":"self"}}}`:                                           "client-self",
		`{"params":{"clientInfo":{"name":"6ba7b810-9dad-11d1-80b4-00c04fd430c8"}}}`:           "client-6ba7b810-9dad-11d1-80b4-00c04fd430c8",
		`{"params":{"clientInfo":{"name":"` + long + `"}}}`:                                   long[:64],
		`{"params":[]}`: "client",
		`{}`:            "client",
	} {
		m, ok := readMessage([]byte(line))
		if got := m.clientName(); !ok || got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestMarkResent(t *testing.T) {
	for line, want := range map[string]string{
		`{"id":1}`:                                          `{"id":1,"params":{"_meta":{"leasehold/resent":true}}}`,
		`{"params":{"a":9007199254740993}}`:                 `{"params":{"a":9007199254740993,"_meta":{"leasehold/resent":true}}}`,
		`{"params":{"_meta":{"t":"é","u":1}}}`:              `{"params":{"_meta":{"t":"é","u":1,"leasehold/resent":true}}}`,
		`{"params":[1]}`:                                    `{"params":[1]}`,
		`{"params":{"arguments":{"k":"v","wait_secs":50}}}`: `{"params":{"arguments":{"k":"v","wait_secs":38},"_meta":{"leasehold/resent":true}}}`,
		`{"params":{"arguments":{"wait_secs":12}}}`:         `{"params":{"arguments":{"wait_secs":1},"_meta":{"leasehold/resent":true}}}`,
		`{"params":{"arguments":{"wait_secs":0.5}}}`:        `{"params":{"arguments":{"wait_secs":0.5},"_meta":{"leasehold/resent":true}}}`,
		`{"params":{"arguments":{"wait_secs":0}}}`:          `{"params":{"arguments":{"wait_secs":0},"_meta":{"leasehold/resent":true}}}`,
		`{"params":{"arguments":{"wait_secs":"x"}}}`:        `{"params":{"arguments":{"wait_secs":"x"},"_meta":{"leasehold/resent":true}}}`,
	} {
		got := markResent([]byte(line), 12*time.Second)
		var g, w any
		if json.Unmarshal(got, &g) != nil || json.Unmarshal([]byte(want), &w) != nil || !reflect.DeepEqual(g, w) {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
		if strings.Contains(line, "9007199254740993") && !strings.Contains(string(got), "9007199254740993") {
			t.Errorf("a number changed: %s", got)
		}
	}
}

func TestIDKeysTellNumbersFromStrings(t *testing.T) {
	keys := make(map[string]bool)
	for _, id := range []string{`1`, `"1"`, `"a"`, `1.5`} {
		keys[idKey(json.RawMessage(id))] = true
	}
	if len(keys) != 4 || idKey(json.RawMessage(`"\u0061"`)) != idKey(json.RawMessage(`"a"`)) {
		t.Errorf("keys: %v", keys)
	}
}
