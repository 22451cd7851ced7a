package server

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// peerCredentials returns the process and the user that connected.
func peerCredentials(fd int) (pid, uid int, err error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, 0, err
	}
	return int(cred.Pid), int(cred.Uid), nil
}

// userOf returns the user of the process that has a TCP connection from one address to
// another, if it runs on this machine.
func userOf(from, to netip.AddrPort) (uid int, ok bool) {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue // there is no IPv6
		}
		for lines := bufio.NewScanner(f); !ok && lines.Scan(); {
			const local, remote, user = 1, 2, 7
			if field := strings.Fields(lines.Text()); len(field) > user && listed(field[local], from) && listed(field[remote], to) {
				uid, err = strconv.Atoi(field[user])
				ok = err == nil
			}
		}
		f.Close()
	}
	return uid, ok
}

// listed reports whether text is an address as the kernel lists it: words of 32 bits, each
// as the machine reads it from memory, and the port.
func listed(text string, a netip.AddrPort) bool {
	words, port, _ := strings.Cut(text, ":")
	ip, err := hex.DecodeString(words)
	if number, bad := strconv.ParseUint(port, 16, 16); err != nil || bad != nil || uint16(number) != a.Port() {
		return false
	}
	for i := 0; i+4 <= len(ip); i += 4 {
		binary.NativeEndian.PutUint32(ip[i:], binary.BigEndian.Uint32(ip[i:]))
	}
	is, ok := netip.AddrFromSlice(ip)
	return ok && is.Unmap() == a.Addr().Unmap().WithZone("")
}
