#!/bin/bash
# Races the start: from the command to the first event that it can see, in seconds.
#
#   bench/capture/start.sh ROUNDS
#
# `perfloss offcpu`, like bcc's offcputime, prints its first line when it traces; bpftrace, which says so before it does, is asked to
# print at the first switch. The offcputime of Debian 12's libbpf-tools (0.26) says nothing before its end and
# is left out. Run `cargo build --release -p perfloss` first (PERFLOSS names the binary). Peers that are not there, do not run on this
# kernel or do not say when they trace are left out and named.
set -u
rounds=${1:?how many rounds?}
if [ -z "${IN_NAMESPACE:-}" ]; then
	# bpftrace wants tracefs, which may not be mounted
	IN_NAMESPACE=1 exec unshare -m --propagation private "$0" "$@"
fi
[ -d /sys/kernel/tracing/events/sched ] || mount -t tracefs tracefs /sys/kernel/tracing
here=$(cd "$(dirname "$0")" && pwd)
PERFLOSS=${PERFLOSS:-${CARGO_TARGET_DIR:-$here/../../target}/release/perfloss}
OFFCPUTIME=${OFFCPUTIME:-$(command -v offcputime || echo /usr/sbin/offcputime)}

command_of() {
	case $1 in
	perfloss) echo "$PERFLOSS offcpu -K" ;;
	offcputime) echo "stdbuf -oL $OFFCPUTIME" ;;
	offcputime-bpfcc) echo "offcputime-bpfcc -K" ;;
	bpftrace) echo "bpftrace -e tracepoint:sched:sched_switch{printf(\"first\\n\");exit();}" ;;
	esac
}

# Seconds from the start of a command to its first line; nothing if it ends without one that it should give.
first_line() {
	local begin=$EPOCHREALTIME line end fd pid
	exec {fd}< <(exec $(command_of "$1") 2>/dev/null)
	pid=$!
	while read -r -t 10 -u "$fd" line; do
		case $line in Tracing* | first*)
			end=$EPOCHREALTIME
			break
			;;
		esac
	done
	kill -INT $pid 2>/dev/null
	exec {fd}<&-
	while kill -0 $pid 2>/dev/null; do sleep 0.02; done
	[ -n "${end:-}" ] && echo "$end - $begin" | bc -l
}

variants=
for v in perfloss offcputime offcputime-bpfcc bpftrace; do
	if [ -n "$(first_line $v)" ]; then variants="$variants $v"; else echo "left out: $v does not run here, or does not say when it traces"; fi
done
results=$(mktemp)
trap 'rm -f "$results"' EXIT
for ((round = 1; round <= rounds; round++)); do
	for v in $(shuf -e $variants); do
		echo "$round $v $(first_line "$v")" >>"$results"
	done
done
awk '
	{ t[$1, $2] = $3; names[$2]; if ($1 > n) n = $1 }
	function median(a, n,   i, j, x) {
		for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] < a[j-1]; j--) { x = a[j]; a[j] = a[j-1]; a[j-1] = x }
		return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
	}
	END {
		printf "%-18s %10s %8s %8s %22s\n", "tracer", "seconds", "least", "most", "times that of perfloss"
		for (v in names) {
			for (r = 1; r <= n; r++) { x[r] = t[r, v]; q[r] = t[r, v] / t[r, "perfloss"] }
			m = median(x, n); least = x[1]; most = x[n]
			printf "%-18s %10.3f %8.3f %8.3f %22.2f\n", v, m, least, most, median(q, n) | "sort -k2 -n"
		}
	}' "$results"
