# The root: enqueues six tasks, has three workers do them, adds up what comes
# out. One worker dies on purpose; that is a failure of its own, and of nothing
# else, so this expects it.
set -eu

tasks=
for n in 1 2 3 4 5 6; do
	tasks="$tasks $(leasehold call task_enqueue queue=squares payload="$n" idempotency_key="square-$n" --field /task_id)"
done
leasehold call spawn_worker name=crash prompt="die with a task in hand"
leasehold call actor_wait actors=crash wait_secs=50 >/dev/null # else the others may leave it none
for name in W1 W2; do
	leasehold call spawn_worker name=$name prompt=work
done

sum=0
for task in $tasks; do
	square=$(leasehold call task_result task_id="$task" wait_secs=50 --field /result)
	sum=$((sum + square))
done
[ "$sum" = 91 ] || { echo "the squares add up to $sum" >&2; exit 1; }
leasehold call actor_wait actors=W1,W2,crash mode=all wait_secs=50 >/dev/null
leasehold call actor_report result="$sum"
