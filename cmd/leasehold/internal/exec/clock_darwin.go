package exec

import "time"

// now is an instant of the wall clock, without the reading of package time's
// other clock, which stands still while the machine sleeps. A step of the wall
// clock forwards ends the program early; one backwards is noticed at the next
// renewal, which the daemon refuses.
func now() time.Time { return time.Now().Round(0) }
