#!/bin/bash
# Races tracers under one load, interleaved: what does each leave of the throughput?
#
#   bench/capture/race.sh LOAD ROUNDS [SECONDS]      LOAD: pipes1 (two tasks on one CPU), pipes, create_unlink and fsync (ext4), cc, storm (xfs)
#
# Builds nothing that is measured while it measures: run `cargo build --release -p capture --examples` first
# (RECORD names the binary). Debian packages of the peers: libbpf-tools, linux-perf, bpftrace; those that are not there, or do not
# run on this kernel, are left out and named. VARIANTS="none perfloss" races only some; the variants perfloss-cost and stackless-cost say what
# the capture itself takes: the time of its programs (kernel.bpf_stats_enabled) and of its reader, as a part of the load's CPU time.
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
stats=/proc/sys/kernel/bpf_stats_enabled
trap 'echo 0 >$stats; cd /; umount -q "$work/mnt"; umount -l "$work"; rmdir "$work"' EXIT
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
	perfloss-cost) echo 1 >$stats; "$RECORD" "$whole" --cost >"$work/log/$1" 2>&1 & ;;
	stackless-cost) echo 1 >$stats; "$RECORD" "$whole" --cost --stackless >"$work/log/$1" 2>&1 & ;;
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
		# with the processes of the tracer: itself, and what it runs under timeout
		rate=$($pin "$work/loads" $kind "$seconds" $tasks "$dir" $tracer ${tracer:+$(pgrep -P $tracer)}) || { echo "the load failed under $v" >&2; exit 3; }
		[ -n "$tracer" ] && wait $tracer
		lost=$(sed -n 's/.*lost_events: \([0-9]*\),/\1/p' "$work/log/$v" 2>/dev/null | head -1)
		set -- $rate
		if [[ $v = *-cost ]]; then
			echo 0 >$stats
			awk -v n="$4" -v us="$2" '{ ns[$1] = $2 } END { print ns["programs_ns:"] / 1e3 / n, ns["reader_ns:"] / 1e3 / n, us }' \
				"$work/log/$v" >>"$work/$v"
		fi
		echo "$round $v $1 $2 $3 ${lost:--}" >>"$work/results"
	done
done
# Ratios to the untraced run of the same round: of the throughput, and of the CPU time an operation takes (the tracer's own included), which
# is less noisy and, where all CPUs are busy, says the same. Medians over the rounds, with the interval that has the median in 95 of
# 100 races: from the k-th least to the k-th most (all of them with less than six rounds).
awk -v load="$load" '
	{ rate[$1, $2] = $3; cpu[$1, $2] = $4 + $5; names[$2]; if ($1 > n) n = $1; if ($6 != "-") lost[$2] += $6; else if (!($2 in lost)) lost[$2] = "-" }
	function sorted(a, n,   i, j, t) {
		for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] < a[j-1]; j--) { t = a[j]; a[j] = a[j-1]; a[j-1] = t }
	}
	function median(a, n) {
		sorted(a, n)
		return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
	}
	# how many of the least and of the most can be left out: as many as of n throws of a coin hardly ever are tails
	function outside(n,   k, ways, below) {
		ways = 1; below = 0
		for (k = 0; k < n; k++) {
			below += ways / 2 ^ n
			if (2 * below > 0.05) return k
			ways = ways * (n - k) / (k + 1)
		}
	}
	END {
		k = outside(n); if (k < 1) k = 1
		printf "%-14s %-16s %10s %7s %15s %10s %7s %15s %6s\n", "load", "tracer", "ops/s", "kept", "interval", "CPU-us/op", "kept", "interval", "lost"
		for (v in names) {
			for (r = 1; r <= n; r++) {
				x[r] = rate[r, v]; q[r] = rate[r, v] / rate[r, "none"]
				c[r] = cpu[r, v]; p[r] = cpu[r, "none"] / cpu[r, v]
			}
			m = median(x, n); mq = median(q, n); mc = median(c, n); mp = median(p, n)
			printf "%-14s %-16s %10.0f %7.3f %15s %10.2f %7.3f %15s %6s\n", load, v, m, mq, sprintf("%.3f-%.3f", q[k], q[n + 1 - k]), \
				mc, mp, sprintf("%.3f-%.3f", p[k], p[n + 1 - k]), lost[v] | "sort -k4 -rn"
		}
		close("sort -k4 -rn")
		if (!(("stackless" in names) && ("perfloss" in names))) exit
		for (r = 1; r <= n; r++) { q[r] = rate[r, "perfloss"] / rate[r, "stackless"]; p[r] = cpu[r, "stackless"] / cpu[r, "perfloss"] }
		mq = median(q, n); mp = median(p, n)
		printf "with stacks, of without: %.3f (%.3f-%.3f), by CPU time %.3f (%.3f-%.3f)\n", mq, q[k], q[n + 1 - k], mp, p[k], p[n + 1 - k]
	}' "$work/results"
for v in $variants; do
	[[ $v = *-cost ]] || continue
	awk -v v="$v" '{ p += $1; r += $2; c += $3 }
		END { printf "%s: programs %.2f us and reader %.2f us of %.2f us an operation: %.3f kept\n", v, p / NR, r / NR, c / NR, 1 - (p + r) / c }' "$work/$v"
done
