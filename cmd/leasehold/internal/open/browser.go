package open

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// start opens a link in the user's browser. It returns false if there is no
// desktop. It does not wait for the browser, because some opener programs stay
// until the browser is closed.
func start(link string) bool {
	opener := "xdg-open"
	switch {
	case runtime.GOOS == "darwin":
		opener = "open"
	case os.Getenv("WSL_DISTRO_NAME") != "":
		opener = "wslview"
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "":
		return false
	}
	path, err := exec.LookPath(opener)
	if err != nil {
		return false
	}
	cmd := exec.Command(path, link)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // not reached by Ctrl-C
	if cmd.Start() != nil {
		return false
	}
	return cmd.Process.Release() == nil
}
