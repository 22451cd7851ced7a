package queue

import (
	"bytes"
	"encoding/json"
)

// canonicalJSON returns valid JSON in a form that is the same for every order of
// the names in an object, every spelling of a string and all white space. Numbers
// are left as they are written.
func canonicalJSON(text []byte) []byte {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return text
	}
	list, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return list
}

func sameJSON(a, b string) bool {
	return a != "" && b != "" && bytes.Equal(canonicalJSON([]byte(a)), canonicalJSON([]byte(b)))
}
