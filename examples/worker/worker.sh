#!/bin/sh
# worker.sh QUEUE WAIT PROGRAM [ARG ...] runs PROGRAM for each task of QUEUE, with the
# task's payload as its input, and ends if there was no task for WAIT seconds. Start it
# with
#
#	leasehold exec -- ./worker.sh compile 50 ./compile.sh
set -eu
queue=$1 wait=$2
shift 2

while :; do
	tasks=$(leasehold call task_claim queues="$queue" ttl_secs=60 wait_secs="$wait" --field /tasks)
	[ "$tasks" != '[]' ] || exit 0
	id=$(printf %s "$tasks" | sed 's/[^,]*"task_id":"\([^"]*\)".*/\1/')
	token=$(printf %s "$tasks" | sed 's/.*"token":\([0-9]*\).*/\1/')
	payload=$(leasehold call task_get task_id="$id" --field /payload)

	printf '%s\n' "$payload" | "$@" &
	work=$!
	while sleep 20; do
		leasehold call task_heartbeat task_id="$id" token="$token" ttl_secs=60 >/dev/null || kill "$work"
	done &
	beats=$!
	if wait "$work"; then
		leasehold call task_submit task_id="$id" token="$token" status=completed
	else
		leasehold call task_nack task_id="$id" token="$token" reason="$1 ended with exit code $?"
	fi || echo "the claim is lost: another worker may be at task $id" >&2
	kill "$beats"
done
