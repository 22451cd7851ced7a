# The root: has five parts built at the same time.
set -eu

for n in 1 2 3 4 5; do
	leasehold call spawn_worker name="part$n" prompt="build part $n"
done
leasehold call actor_wait actors=part1,part2,part3,part4,part5 mode=all wait_secs=50 >/dev/null

times=$(wc -l <"$LEASEHOLD_RUN_DIR/generated.log" | tr -d ' ')
[ "$times" = 1 ] || { echo "generated $times times" >&2; exit 1; }
leasehold call actor_report result="five parts, generated once"
