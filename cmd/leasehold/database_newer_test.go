package main

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/postgres"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// During an upgrade, a server of the earlier version may come to lead a partition that a
// later version has written. It cannot, and leaves its share to the others.
func TestAServerThatCannotReadAPartitionDrainsItself(t *testing.T) {
	t.Parallel()
	database := postgrestest.Start(t)
	newDir(t, "LEASEHOLD_POSTGRES="+database.DSN())
	shows := func(text string) func() bool {
		return func() bool {
			out, err := testProgram(t, "cluster").CombinedOutput()
			return err == nil && strings.Contains(string(out), text)
		}
	}
	daemon := startDaemon(t, "--single-node", "--partitions", "2")
	awaitTrue(t, "it leads both", shows(" 2      up"))
	_ = daemon.Process.Signal(os.Interrupt)
	_ = daemon.Wait()
	later, err := postgres.Open(t.Context(), postgres.Options{DSN: database.DSN(), Partition: 1, SingleNode: true})
	if err != nil {
		t.Fatal(err)
	}
	err = later.Update(t.Context(), func(tx engine.Tx) error {
		tx.Put(engine.Row{Key: dispatch.FormatKey, Value: strconv.Itoa(dispatch.Format + 1)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := later.Close(); err != nil {
		t.Fatal(err)
	}
	startDaemon(t, "--single-node")
	awaitTrue(t, "it is draining", shows(" draining"))
	awaitTrue(t, "it leads what it can, for there is no other server", shows(" 1      draining"))
}
