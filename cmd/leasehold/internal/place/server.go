package place

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/client/address"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/dispatch"
)

// Servers are servers on other machines, any of which a command may use.
type Servers struct {
	URLs  []*url.URL
	Token string      // sent to each server; see TokenNow
	TLS   *tls.Config // for https
}

// WithServer adds the flags --socket and --server to a command.
func WithServer(cmd *cobra.Command) *cobra.Command {
	WithSocket(cmd).Flags().StringSlice("server", nil, "a server elsewhere, in place of --socket: the first `URL` of these that answers, with the token in LEASEHOLD_TOKEN (default $LEASEHOLD_SERVER)")
	return cmd
}

// serversOf returns the servers that a command uses, or nil for a daemon of
// this machine. A --socket flag takes precedence over LEASEHOLD_SERVER.
func serversOf(cmd *cobra.Command) (*Servers, error) {
	f := cmd.Flags()
	if f.Lookup("server") == nil {
		return nil, nil
	}
	named, err := f.GetStringSlice("server")
	if err != nil {
		return nil, err
	}
	if len(named) > 0 && f.Changed("socket") {
		return nil, exit.Usagef("--socket and --server both say where to connect; give one")
	}
	if from := os.Getenv("LEASEHOLD_SERVER"); len(named) == 0 && from != "" && !f.Changed("socket") {
		named = strings.Split(from, ",")
	}
	if len(named) == 0 {
		return nil, nil
	}
	s := new(Servers)
	for _, name := range named {
		u, err := serverURL(strings.TrimSpace(name))
		if err != nil {
			if strings.Contains(name, "@") {
				name = "URL with a password" // never shown
				err = errors.New("must have no name or password: a token comes from LEASEHOLD_TOKEN or a file")
			}
			return nil, exit.Usagef("server %q: %w", name, err)
		}
		s.URLs = append(s.URLs, u)
	}
	if s.TLS, err = serverTLS(os.Getenv("LEASEHOLD_SERVER_CA")); err != nil {
		return nil, err
	}
	if s.Token, err = token(); err != nil {
		return nil, err
	}
	if s.Token == "" {
		return nil, exit.Usage(exit.Hint(errors.New("a server elsewhere knows its clients by their tokens, and there is none"),
			"put it into LEASEHOLD_TOKEN, or its file into LEASEHOLD_TOKEN_FILE; leasehold actor add or leasehold token issue makes one, where that server runs"))
	}
	return s, nil
}

// NoteLocal says on stderr that a command means the daemon of this machine, if
// LEASEHOLD_SERVER names a server elsewhere, which other commands use.
func NoteLocal(cmd *cobra.Command) {
	if os.Getenv("LEASEHOLD_SERVER") != "" && !cmd.Flags().Changed("socket") {
		fmt.Fprintf(cmd.ErrOrStderr(), "leasehold: %s means the daemon of this machine, whatever LEASEHOLD_SERVER says\n", cmd.Name())
	}
}

// TokenNow returns the token for another connection. Its file may have a new one by now;
// if it cannot be read, the token is still the last one.
func (s *Servers) TokenNow() string {
	if now, err := token(); err == nil && now != "" {
		s.Token = now
	}
	return s.Token
}

// token returns the token from the environment or from a file.
func token() (string, error) {
	token, file := os.Getenv("LEASEHOLD_TOKEN"), os.Getenv("LEASEHOLD_TOKEN_FILE")
	if token != "" || file == "" {
		return token, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", exit.Hint(fmt.Errorf("LEASEHOLD_TOKEN_FILE: %w", err), "it names the file with the token, which this user must be able to read")
	}
	if token := strings.TrimSpace(string(text)); token != "" {
		return token, nil
	}
	return "", fmt.Errorf("LEASEHOLD_TOKEN_FILE: %s has no token", file)
}

// ActorToken returns the token of the actor that a command connects as; "" if
// it joins a run. If a server is used, an operator's token only admits the
// client, which then joins a run.
func ActorToken(cmd *cobra.Command) (string, error) {
	own, err := token()
	if servers, _ := serversOf(cmd); servers != nil && dispatch.IsAccess(own) {
		return "", err
	}
	return own, err
}

// serverURL parses the URL of a server. Plain http, which would expose the
// token, is accepted only for this machine.
func serverURL(name string) (*url.URL, error) {
	if !strings.Contains(name, "://") { // url.Parse has other words for some of these
		name = "//" + name
	}
	u, err := url.Parse(name)
	switch {
	case err != nil:
		return nil, err
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("must begin with https://, or with http:// for a server of this machine")
	case u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("must be as https://leases.example.org:7711")
	case u.User != nil:
		return nil, errors.New("must have no name or password")
	case address.Exposes(u):
		return nil, exit.Hint(errors.New("http:// would show the token to everybody on the way"), "serve it with --tls-cert and --tls-key, and use https://")
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/mcp")
	return u, nil
}

// serverTLS trusts the certificates in a file, or by default the system's.
func serverTLS(file string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if file == "" {
		return c, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, exit.Hint(fmt.Errorf("LEASEHOLD_SERVER_CA: %w", err), "it names a file in PEM, which this user must be able to read")
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(text) {
		return nil, exit.Hint(fmt.Errorf("%s has no certificate", file), "LEASEHOLD_SERVER_CA names a file in PEM")
	}
	return c, nil
}

// Address returns the host and port to dial.
func Address(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
}
