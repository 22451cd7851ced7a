package setup

import "testing"

// BetweenReadAndWrite has do run after a file was read and before it is written.
func BetweenReadAndWrite(t *testing.T, do func()) {
	beforeWrite = do
	t.Cleanup(func() { beforeWrite = func() {} })
}
