# A worker: claims tasks until there are none. The task's token proves, as it
# submits, that nobody has taken the task over meanwhile.
set -eu

read -r prompt
done=0
while :; do
	answer=$(leasehold call task_claim queues=squares ttl_secs=30 wait_secs=2 --field /tasks)
	[ "$answer" != '[]' ] || break
	task=$(printf %s "$answer" | sed 's/.*"task_id":"\([^"]*\)".*/\1/')
	token=$(printf %s "$answer" | sed 's/.*"token":\([0-9]*\).*/\1/')
	n=$(printf %s "$answer" | sed 's/.*"payload":\([0-9]*\).*/\1/')

	case $prompt in
	die*) kill -9 $$ ;; # as a machine would: without a word
	esac

	leasehold call task_submit task_id="$task" token="$token" status=completed result="$((n * n))"
	done=$((done + 1))
done
leasehold call actor_report result="$done"
