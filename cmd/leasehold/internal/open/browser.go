package open

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// opener returns the program that opens a link in the user's browser, or "" if there is
// no desktop.
func opener() string {
	name := "xdg-open"
	switch {
	case runtime.GOOS == "darwin":
		name = "open"
	case os.Getenv("WSL_DISTRO_NAME") != "":
		name = "wslview"
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "":
		return ""
	}
	path, _ := exec.LookPath(name) // without it, a desktop is of no use
	return path
}

// start has a program open a link. It does not wait for the program, because some stay
// until the browser is closed.
func start(opener, link string) bool {
	cmd := exec.Command(opener, link)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // not reached by Ctrl-C
	return cmd.Start() == nil && cmd.Process.Release() == nil
}
