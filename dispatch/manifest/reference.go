package manifest

// Reference is.
func Reference() string { return "" }
