package agenttest

import (
	"fmt"
	"strings"
)

// flags are what a client takes: for each flag, under all of its names, how
// many values. many is as many as there are until the next flag.
type flags map[string]int

const many = -1

// parse reads arguments as the clients do: --name value, --name=value, and --
// before what is no flag. Short flags stand alone.
func (f flags) parse(args []string) (given map[string][]string, rest []string, err error) {
	given = make(map[string][]string)
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			return given, append(rest, args...), nil
		}
		if !strings.HasPrefix(arg, "-") || arg == "-" {
			rest = append(rest, arg)
			continue
		}
		name, value, inline := strings.Cut(arg, "=")
		n, known := f[name]
		switch {
		case !known:
			return nil, nil, fmt.Errorf("unknown option %q", name)
		case n == 0 && inline:
			return nil, nil, fmt.Errorf("option %s takes no value", name)
		case n == 0:
			given[name] = append(given[name], "")
		case inline:
			given[name] = append(given[name], value)
		case n == many:
			for len(args) > 0 && !strings.HasPrefix(args[0], "-") {
				given[name] = append(given[name], args[0])
				args = args[1:]
			}
		case len(args) == 0:
			return nil, nil, fmt.Errorf("option %s needs a value", name)
		default:
			given[name] = append(given[name], args[0])
			args = args[1:]
		}
	}
	return given, rest, nil
}

// one is the last value of any of the names.
func one(given map[string][]string, names ...string) string {
	for _, name := range names {
		if v := given[name]; len(v) > 0 {
			return v[len(v)-1]
		}
	}
	return ""
}

func has(given map[string][]string, names ...string) bool {
	for _, name := range names {
		if _, ok := given[name]; ok {
			return true
		}
	}
	return false
}
