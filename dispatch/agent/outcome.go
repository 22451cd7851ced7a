package agent

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// Outcome is what an agent's output says of how it went. An agent that printed
// nothing of the form that is expected has the zero Outcome.
type Outcome struct {
	Result     string          // at most MaxResult bytes
	ResultJSON json.RawMessage // where the result is more than text; nil if it is not, or too long
	CostUSD    *float64        // nil: it says nothing
	Failed     string          // why, if the agent says that it failed
}

// MaxResult is how much of a result is kept, in bytes: of one that is said, the
// beginning; of mere output, the end.
const MaxResult = 64 << 10

// Outcome reads the recorded standard output of a process that was launched by
// the profile, in memory that does not grow with it.
func (p Profile) Outcome(stdout io.Reader) Outcome {
	in := newLines(stdout)
	var o Outcome
	read := p.client().read
	switch {
	case read != nil && p.Result == "" && p.Cost == "":
		o = read(in)
	case read != nil:
		o = read(in)
		fallthrough
	default:
		in.drain()
		p.point(&o, in)
	}
	return o.bounded()
}

// point takes result and cost from where the profile says they are.
func (p Profile) point(o *Outcome, in *lines) {
	var object []byte
	if isPointer(p.Result) || isPointer(p.Cost) {
		object = in.lastObject()
	}
	switch {
	case isPointer(p.Result):
		o.Result, o.ResultJSON = "", nil
		if value, ok := pointed(object, p.Result); !ok {
			o.Result = in.end()
		} else if json.Unmarshal(value, &o.Result) != nil {
			o.Result, o.ResultJSON = string(value), value
		}
	case p.Result == output || p.client().read == nil:
		o.Result, o.ResultJSON = in.end(), nil
	}
	if isPointer(p.Cost) {
		o.CostUSD = nil
		var cost float64
		if value, ok := pointed(object, p.Cost); ok && json.Unmarshal(value, &cost) == nil {
			o.CostUSD = &cost
		}
	}
}

func (o Outcome) bounded() Outcome {
	o.Result = beginning(o.Result)
	o.Failed = beginning(o.Failed)
	if len(o.ResultJSON) > MaxResult || bytes.Equal(o.ResultJSON, []byte("null")) {
		o.ResultJSON = nil
	}
	if c := o.CostUSD; c != nil && (*c < 0 || math.IsInf(*c, 0) || math.IsNaN(*c)) {
		o.CostUSD = nil
	}
	return o
}

// beginning is as much of s as is kept, in whole characters.
func beginning(s string) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if len(s) <= MaxResult {
		return s
	}
	n := MaxResult
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
