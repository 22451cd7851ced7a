package open

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// start opens a link in the user's browser. It reports false where there is no desktop.
// Nobody waits for the browser: some stay until they are closed.
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C here is not meant for it
	if cmd.Start() != nil {
		return false
	}
	return cmd.Process.Release() == nil
}
