package connection

import (
	"errors"
	"fmt"

	"golang.org/x/mod/semver"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/build"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/dispatch/client"
)

// VersionAdvice says what to do if the daemon's version is not this command's.
// It returns "" if they are the same.
func VersionAdvice(daemon string) string {
	here := build.Version()
	switch a, b := "v"+daemon, "v"+here; {
	case daemon == here:
		return ""
	case semver.IsValid(a) && semver.IsValid(b) && semver.Compare(a, b) > 0:
		return fmt.Sprintf("this command is version %s and older than the daemon, version %s: install version %s here too", here, daemon, daemon)
	case semver.IsValid(a) && semver.IsValid(b):
		return fmt.Sprintf("the daemon is version %s and older than this command, version %s: leasehold restart starts the installed version, and no session ends by that", daemon, here)
	default:
		return fmt.Sprintf("the daemon is version %s and this command version %s: leasehold restart starts the installed version, and no session ends by that", daemon, here)
	}
}

// OtherVersion adds advice to an error that may come from a daemon of another
// version.
func OtherVersion(c *client.Client, err error) error {
	var advice exit.Hinted
	var refusal *client.Refusal
	if err == nil || errors.As(err, &advice) || errors.As(err, &refusal) && refusal.Code != "INVALID_ARGUMENT" {
		return err
	}
	if advice := VersionAdvice(c.Version); advice != "" {
		return exit.Hint(err, "%s", advice)
	}
	return err
}
