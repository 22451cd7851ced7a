# The root: has two phases work at the same time, and waits for both.
set -eu

leasehold call spawn_worker name=draft prompt="Draft the report."
leasehold call spawn_worker name=review prompt="Review the report."
leasehold call actor_wait actors=draft,review mode=all wait_secs=50 >/dev/null

echo "the report:"
cat "$LEASEHOLD_RUN_DIR/report.txt"
leasehold call actor_report result="drafted and reviewed, one after the other"
