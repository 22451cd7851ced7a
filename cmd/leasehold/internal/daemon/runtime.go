package daemon

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/rs/zerolog"
)

// spareProcessor makes up for the processor that waits for the disk: Go takes it back
// from a system call only after a while. With 64 clients on two cores, durable calls
// became a tenth faster, and other calls did not change. GOMAXPROCS in the environment
// takes precedence.
func spareProcessor() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
}

// ballast makes the collector run less often while little lives in the daemon: Go collects
// when the heap has doubled, and that of a small daemon doubles in milliseconds under load.
// With it, the slowest calls of a client whose neighbours work without a pause took a quarter
// less, for 35 MB of garbage at most. Nothing is ever written to it, so it takes no memory
// itself, and it has no pointers, so the collector does not look into it. GOGC in the
// environment takes precedence, and where memory is limited to little, the limit would
// count it.
func ballast() []byte {
	if os.Getenv("GOGC") != "" || debug.SetMemoryLimit(-1) < 1<<30 {
		return nil
	}
	return make([]byte, 32<<20)
}

// limitMemory makes the collector work harder near the limit of the daemon's control
// group, as of a container, where the kernel kills. With 200 000 tasks in 128 MiB, the
// daemon was killed after 1 200 more, and with this it went on. GOMEMLIMIT in the
// environment takes precedence.
func limitMemory(log zerolog.Logger) {
	if limit, err := memlimit.Set(); err == nil && limit < math.MaxInt64 {
		log.Info().Int64("bytes", limit).Msg("memory is limited")
	}
}
