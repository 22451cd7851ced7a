package terminal

import "fmt"

// Size formats a number of bytes.
func Size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	size, unit := float64(n), 0
	for size >= 1024 && unit < len(units)-1 {
		size, unit = size/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", size, units[unit])
}
