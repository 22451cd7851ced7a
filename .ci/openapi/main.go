// Openapi prints the document of the HTTP API, for those who read it with other tools.
package main

import (
	"os"

	"github.com/leasehold/leasehold/dispatch/server/api"
)

func main() { _, _ = os.Stdout.Write(api.Document("1.0.0")) }
