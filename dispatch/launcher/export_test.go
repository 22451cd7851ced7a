package launcher

import "encoding/json"

// Changes are the events between two answers of operator_leases.
func Changes(before, after string) (texts []string, err error) {
	var a, b leaseList
	if err := json.Unmarshal([]byte(before), &a); err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(after), &b); err != nil {
		return nil, err
	}
	for _, e := range a.standings().changes(b.standings()) {
		texts = append(texts, e.Event+": "+e.Text)
	}
	return texts, nil
}
