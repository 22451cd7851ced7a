# Generates the file unless it is there. Runs under the lease alone.
set -eu
cd "$LEASEHOLD_RUN_DIR"

[ ! -e generated ] || exit 0
sleep 1 # what a generator takes
echo "$LEASEHOLD_NAME, fence $LEASEHOLD_FENCE" >>generated.log
echo "$LEASEHOLD_NAME" >generated
