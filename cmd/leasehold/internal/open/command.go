// Package open signs a browser in to the page.
package open

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/view"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A link signs one browser in, once.
type link struct {
	URL       string  `json:"url"`
	Role      string  `json:"role"`
	ExpiresIn float64 `json:"expires_in_secs"`
}

// NewCommand returns the command open.
func NewCommand() *cobra.Command {
	var role, base string
	var onlyPrint bool
	var reply connection.Reply
	cmd := place.WithSocket(&cobra.Command{
		Use:   "open",
		Short: "Open the web page, signed in by a one-time link",
		Long: `Open the web page in your browser: the tree, leases, queues, events and output of your
runs, live. The link signs one browser in, within two minutes, for twelve hours.
leasehold token list shows who is signed in, and leasehold token revoke ends it.

The daemon serves the page wherever it serves HTTP. One that serves none opens a port
of the loopback for it, which stays until the daemon ends.

With --role reader the page shows everything and changes nothing.`,
		Example: `  leasehold open

  # print the link, and open nothing
  leasehold open --print

  # for somebody who should only look, at a daemon that others reach by a name
  leasehold open --print --role reader --url https://leases.example.org`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			browser := ""
			if !onlyPrint && !reply.JSON {
				browser = opener()
			}
			l, err := ask(cmd, role, base, browser != "")
			if err != nil {
				return reply.Refused(cmd, err)
			}
			switch {
			case reply.JSON:
				encoder := json.NewEncoder(out)
				encoder.SetEscapeHTML(false)
				return encoder.Encode(l)
			case onlyPrint:
				_, err = fmt.Fprintln(out, l.URL)
				return err
			}
			if browser != "" && start(browser, l.URL) {
				fmt.Fprintln(out, "Opening the page in your browser. If nothing opens, use this link:")
			} else {
				fmt.Fprintln(out, "There is no desktop here. Open this link in a browser:")
			}
			_, err = fmt.Fprintf(out, "\n  %s\n\nIt works once, within %s.\n", l.URL, time.Duration(l.ExpiresIn*float64(time.Second)))
			return err
		},
	})
	f := cmd.Flags()
	role = "operator"
	view.OneOf(cmd, &role, "role", "operator may act, reader only look", "operator", "reader")
	f.StringVar(&base, "url", "", "the `address` by which the browser reaches the daemon, if that is not where it listens")
	f.BoolVar(&onlyPrint, "print", false, "print the link, and open no browser")
	reply.Flag(cmd, "print JSON, one object per line, and open no browser")
	return cmd
}

// ask asks the daemon for a link. Other users see the command line of a browser, so the
// link that a browser is started with must be of no use to them.
func ask(cmd *cobra.Command, role, base string, browser bool) (link, error) {
	browser = browser && base == "" // else a proxy of another user may be between them
	if base != "" {
		u, err := url.Parse(base)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return link{}, exit.Usagef("--url %s: must be an address such as https://leases.example.org", base)
		}
		base = u.Scheme + "://" + u.Host
	}
	place.NoteLocal(cmd)
	d, err := connection.For(cmd)
	if err != nil {
		return link{}, err
	}
	c, err := d.Open(cmd.Context(), server.Hello{Operator: true}, true)
	if err != nil {
		return link{}, err
	}
	defer c.Close()
	if base == "" {
		base = served(d)
	}
	answer, err := connection.Call(cmd.Context(), c, "operator_page_open", map[string]any{"role": role, "port": base == "", "own": browser})
	if err != nil {
		return link{}, err
	}
	made, err := connection.Decode[struct {
		Code        string `json:"one_time_code"`
		ExpiresInMS int64  `json:"expires_in_ms"`
		URL         string
	}](answer.Object)
	if base == "" {
		base = made.URL
	}
	if err == nil && base == "" {
		err = errors.New("the daemon's answer names no address")
	}
	return link{base + "/#code=" + made.Code, role, float64(made.ExpiresInMS) / 1000}, err
}

// served returns the URL at which the daemon serves HTTP; "" if it does not.
func served(d *connection.Dialer) string {
	if d.Elsewhere() {
		if u, err := url.Parse(d.Socket); err == nil {
			return u.Scheme + "://" + u.Host
		}
	}
	r, ok := place.ReadRecord(d.State())
	if !ok || !r.Alive() || r.Socket != d.Socket {
		return ""
	}
	u, err := url.Parse(r.HTTP)
	if err != nil || u.Host == "" {
		return ""
	}
	host, port, err := net.SplitHostPort(u.Host)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() { // it listens on all addresses
		u.Host = net.JoinHostPort("127.0.0.1", port)
	}
	return u.Scheme + "://" + strings.TrimSuffix(u.Host, "/")
}
