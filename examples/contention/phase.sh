# One phase. It touches the report only while it has the lease on it; who is
# second waits in line. The lease belongs to this process: if it died here, the
# other would have the lease at once.
set -eu

lease=$(leasehold call run_lease_acquire key=report.txt ttl_secs=30 wait_secs=50 --field /lease_id)

echo "$LEASEHOLD_NAME begins" >>"$LEASEHOLD_RUN_DIR/report.txt"
sleep 1
echo "$LEASEHOLD_NAME ends" >>"$LEASEHOLD_RUN_DIR/report.txt"

printf %s "$lease" | leasehold call run_lease_release lease_id=@-
leasehold call actor_report result="$LEASEHOLD_NAME is done"
