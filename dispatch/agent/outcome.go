package agent

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// An Outcome is what the output of an agent says about its work. It is zero if
// the output does not have the expected format.
type Outcome struct {
	Result     string          // at most MaxResult bytes
	ResultJSON json.RawMessage // set if the result is not plain text and not too long
	CostUSD    *float64        // nil: not reported
	Failed     string          // the reason, if the agent reports that it failed
}

// MaxResult is how many bytes of a result are kept: the beginning of a reported
// result, or the end of plain output.
const MaxResult = 64 << 10

// Outcome reads the recorded standard output of a process that was launched
// with the profile. Its memory use does not grow with the output.
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

// point reads the result and the cost from where the profile says they are.
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

// beginning returns the part of s that is kept, in whole characters.
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
