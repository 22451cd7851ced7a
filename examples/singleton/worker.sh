# One part. leasehold exec holds the lease for as long as the command runs, and
# would end the command if it lost the lease.
set -eu

leasehold exec --lease generator --wait 50 -- sh generate.sh
echo "$LEASEHOLD_NAME uses what $(cat "$LEASEHOLD_RUN_DIR/generated") generated"
