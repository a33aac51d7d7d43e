#!/bin/bash
# Races tracers under one load, interleaved: what does each leave of the throughput?
#
#   bench/capture/race.sh LOAD ROUNDS [SECONDS]      LOAD: pipes1 (two tasks on one CPU), pipes, create_unlink and fsync (ext4), cc, storm (xfs)
#
# Builds nothing that is measured while it measures: run `cargo build --release -p capture --examples` first
# (RECORD names the binary). Debian packages of the peers: libbpf-tools, linux-perf, bpftrace; those that are not there, or do not
# run on this kernel, are left out and named. VARIANTS="none perfloss" races only some.
set -u
load=$1 rounds=$2 seconds=${3:-1.5}
here=$(cd "$(dirname "$0")" && pwd)
RECORD=${RECORD:-${CARGO_TARGET_DIR:-$here/../../target}/release/examples/record}
OFFCPUTIME=${OFFCPUTIME:-$(command -v offcputime || echo /usr/sbin/offcputime)}
work=$(mktemp -d /tmp/perfloss-race.XXXXXX)

if [ -z "${IN_NAMESPACE:-}" ]; then
	# mounts end with the namespace
	IN_NAMESPACE=$work exec unshare -m --propagation private "$0" "$@"
fi
rmdir "$work"
work=$IN_NAMESPACE
mount -t tmpfs tmpfs "$work" || exit 4
trap 'cd /; umount -q "$work/mnt"; umount -l "$work"; rmdir "$work"' EXIT
gcc -O2 -o "$work/loads" "$here/loads.c" || exit 4
mkdir "$work/mnt" "$work/log"

tasks=2 kind=$load dir=$work pin=
case $load in
pipes1) kind=pipes tasks=1 pin="taskset -c 0" ;;
pipes) tasks=1 ;;
cc) ;;
create_unlink | fsync) fs=ext4 ;;
storm) fs=xfs kind=create_unlink ;;
*) echo "no such load: $load" >&2; exit 2 ;;
esac
if [ -n "${fs:-}" ]; then
	truncate -s 2G "$work/img"
	mkfs.$fs -q "$work/img" && mount -o loop "$work/img" "$work/mnt" || exit 4
	dir=$work/mnt
fi

whole=$(echo "$seconds + 1" | bc)
start() { # variant: starts it in the background, or fails
	case $1 in
	none) return 0 ;;
	stackless) "$RECORD" "$whole" --stackless >"$work/log/$1" 2>&1 & ;;
	perfloss) "$RECORD" "$whole" >"$work/log/$1" 2>&1 & ;;
	perfloss-offcpu) "$RECORD" "$whole" --offcpu >"$work/log/$1" 2>&1 & ;;
	offcputime) timeout -s INT "$whole" "$OFFCPUTIME" >"$work/log/$1" 2>&1 & ;;
	perf-sched) perf sched record -o "$work/perf.data" -- sleep "$whole" >"$work/log/$1" 2>&1 & ;;
	bpftrace) timeout -s INT "$whole" bpftrace -e \
		'tracepoint:sched:sched_switch { @out[args->prev_pid] = nsecs; if (@out[args->next_pid]) { @us[kstack] = sum((nsecs - @out[args->next_pid]) / 1000); delete(@out[args->next_pid]); } }' \
		>"$work/log/$1" 2>&1 & ;;
	esac
	tracer=$!
	sleep 0.5
	kill -0 $tracer 2>/dev/null
}

variants=${VARIANTS:-none stackless perfloss perfloss-offcpu offcputime perf-sched bpftrace}
for v in $variants; do
	[ "$v" = none ] && continue
	if start $v; then
		kill -INT $tracer 2>/dev/null
	else
		echo "left out: $v does not run here: $(grep -v '^$' "$work/log/$v" | tail -1 | cut -c1-150)"
		variants=${variants/$v/}
	fi
	wait $tracer 2>/dev/null
done
for ((round = 1; round <= rounds; round++)); do
	# each round in another order
	for v in $(shuf -e $variants --random-source=<(yes "$round")); do
		tracer=
		start $v
		rate=$($pin "$work/loads" $kind "$seconds" $tasks "$dir") || { echo "the load failed under $v" >&2; exit 3; }
		[ -n "$tracer" ] && wait $tracer
		lost=$(sed -n 's/.*lost_events: \([0-9]*\),/\1/p' "$work/log/$v" 2>/dev/null | head -1)
		echo "$round $v $rate ${lost:--}" >>"$work/results"
	done
done
# the ratio to the untraced run of the same round; medians over rounds
awk -v load="$load" '
	{ rate[$1, $2] = $3; names[$2]; if ($1 > n) n = $1; if ($4 != "-") lost[$2] += $4; else if (!($2 in lost)) lost[$2] = "-" }
	function median(a, n,   i, j, t) {
		for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] < a[j-1]; j--) { t = a[j]; a[j] = a[j-1]; a[j-1] = t }
		return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
	}
	END {
		printf "%-14s %-16s %12s %8s %8s %8s %8s\n", "load", "tracer", "ops/s", "kept", "least", "most", "lost"
		for (v in names) {
			for (r = 1; r <= n; r++) { x[r] = rate[r, v]; q[r] = rate[r, v] / rate[r, "none"] }
			m = median(x, n); k = median(q, n)
			printf "%-14s %-16s %12.0f %8.3f %8.3f %8.3f %8s\n", load, v, m, k, q[1], q[n], lost[v] | "sort -k4 -rn"
		}
	}' "$work/results"
