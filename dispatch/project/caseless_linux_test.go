package project_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Both file systems ignore case. One gives a file the same inode in every
// spelling, as those of macOS do, and lists names in lower case. The other gives
// each spelling an inode of its own, as exFAT through FUSE does.
func TestWhereCaseIsIgnoredEverySpellingIsTheSame(t *testing.T) {
	for _, fs := range []struct {
		name          string
		format, serve []string
	}{
		{"ntfs", []string{"mkfs.ntfs", "-F", "-Q"}, []string{"lowntfs-3g", "-o", "ignore_case"}},
		{"vfat", []string{"mkfs.vfat"}, []string{"fusefat", "-o", "rw+"}},
	} {
		t.Run(fs.name, func(t *testing.T) {
			mount := serveImage(t, fs.format, fs.serve)
			root := mkdir(t, mount, "Shop")
			plain := mkdir(t, mount, "Notes")
			write(t, filepath.Join(mkdir(t, root, ".git"), "HEAD"), "ref: refs/heads/main\n") // git init needs chmod
			wantPath(t, root, "Src/App.ts", "file:src/app.ts")                                // before the file exists
			wantPath(t, plain, "Todo.md", "file:todo.md")
			write(t, filepath.Join(mkdir(t, root, "Src"), "App.ts"), "")
			write(t, filepath.Join(plain, "Todo.md"), "")

			for _, dir := range []string{root, filepath.Join(mount, "SHOP"), filepath.Join(mount, "shop", "sRC")} {
				if p, want := of(t, dir), of(t, root); p != want {
					t.Errorf("the project of %s is %+v, want %+v", dir, p, want)
				}
				for _, name := range []string{"file:src/app.ts", mount + "/shop/src/APP.ts", mount + "/Shop/Src/App.ts"} {
					wantPath(t, dir, name, "file:src/app.ts")
				}
				wantPath(t, dir, mount+"/SHOP/**", "file:**")
			}
			wantPath(t, filepath.Join(mount, "notes"), "TODO.md", "file:todo.md")
			if a, b := runOf(t, plain), runOf(t, filepath.Join(mount, "nOTES")); a != b {
				t.Errorf("two spellings of a directory have the runs %s and %s", a, b)
			}
		})
	}
}

// serveImage formats an image and mounts it.
func serveImage(t *testing.T, format, serve []string) (mount string) {
	t.Helper()
	base := realDir(t)
	image, mount := filepath.Join(base, "image"), mkdir(t, base, "mount")
	write(t, image, "")
	if err := os.Truncate(image, 16<<20); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{append(format, image), append(serve, image, mount)} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%v: %v\n%s", args, err, out)
		}
	}
	t.Cleanup(func() { _ = syscall.Unmount(mount, syscall.MNT_DETACH) })
	var in, over syscall.Stat_t
	if syscall.Stat(mount, &in) != nil || syscall.Stat(base, &over) != nil || in.Dev == over.Dev {
		t.Skip("nothing is mounted")
	}
	return mount
}
