// Package page is the web page at /: its files, and how a browser signs in to
// it. It does not handle connections, sessions or states; package server does.
//
// # Signing in
//
// leasehold open asks the daemon for a one-time code and prints a link with the
// code after a #, so no server and no log sees it. The page sends the code back
// once, and gets a token of its own, which expires after [SignedIn]. The token
// is split in two ([Split]): a cookie that scripts cannot read, and a key that
// the page keeps and sends with each request in a header. Neither is of use
// alone:
//
//   - A browser sends cookies to every port of a host, so a development server on
//     another port of the loopback gets the cookie. It does not get the key.
//   - Another page can make a browser send a request with the cookie. It cannot add
//     the key, so the request is refused. This is the protection against forged
//     requests (CSRF).
//
// The alternative would be a token in the script's own storage. We did not
// choose it, because a fault of the page could then leak the token, which would
// be valid anywhere.
//
// # Texts
//
// Agents choose keys, reasons and names. The page shows them only as text
// nodes, and its Content-Security-Policy allows only the page's own files to
// run.
package page
