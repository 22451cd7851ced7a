// Package page is the web page at /: its files, and how a browser signs in to it. It
// knows nothing of connections, sessions and states; package server has those.
//
// # Signing in
//
// leasehold open asks the daemon for a one-time code and shows a link that has it
// behind a #, so no server and no log sees it. The page sends the code back once, and
// is given a token of its own, which ends after [SignedIn]. The token is cut in two
// ([Split]): a cookie that scripts cannot read, and a key that the page keeps and sends
// with each request in a header. Neither opens anything alone:
//
//   - A browser sends cookies to every port of a host. So a development server on
//     another port of the loopback is sent the cookie. It does not get the key.
//   - Another page can make a browser send a request with the cookie. It cannot add the
//     key, so nothing happens: that is the protection against forged requests.
//
// A token in the script's own storage was the choice not taken: a fault of the page
// would give it away, for use from anywhere.
//
// # Texts
//
// Agents choose keys, reasons and names. The page shows them as text nodes alone, and
// its Content-Security-Policy lets nothing run that is not one of its files.
package page
