package process_test

import (
	"bytes"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/leasehold/leasehold/dispatch/process"
)

func init() {
	if len(os.Args) > 1 && os.Args[1] == "headless" {
		runtime.LockOSThread() // the first thread must be the one that ends
	}
	linuxRoles = map[string]func([]string){
		// adopter is a dispatcher that adopts. It starts a script that escapes,
		// and reports when its watchdog has been told about the escaped
		// process.
		"adopter": func(args []string) {
			mark, file := args[0], args[1]
			must(process.Adopt())
			must(process.StartWatchdog(os.Args[0], mark, 0))
			p := must(process.Start(process.Spec{Argv: []string{"sh", "-c", escape(file)}, Env: append(os.Environ(), mark), Mark: mark}))
			<-p.Done()
			process.SeeToAdopted()
			say("adopter")
			stay()
		},

		// headless ends its first thread and reports that from another one.
		"headless": func([]string) {
			runtime.GOMAXPROCS(4) // one is lost with the thread
			go func() {
				for {
					if stat, _ := os.ReadFile("/proc/self/stat"); bytes.Contains(stat, []byte(") Z ")) {
						break
					}
					time.Sleep(time.Millisecond)
				}
				say("headless")
				stay()
			}()
			time.Sleep(10 * time.Millisecond)
			syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
		},
	}
}
