#!/bin/bash
# How often `perfloss compare` calls two runs of the same different (A/A), and whether it finds a loss that is there (A/B).
#
#   bench/compare/aa.sh measure DIR COUNT RUN-ARGUMENTS…    makes COUNT runs, DIR/1 DIR/2 …, going on after those that are there
#   bench/compare/aa.sh judge DIR [COMPARE-ARGUMENTS…]      compares every run with the next one: 1 with 2, 2 with 3, …
#   bench/compare/aa.sh judge-ab DIR-A DIR-B [COMPARE-ARGUMENTS…]   compares DIR-A/N with DIR-B/N
#
# Every run is a separate `perfloss run`, so that whatever drifts between runs is in the figures. RUNS=4 compares groups of so many runs a
# side, taken in turn. ALONE names a command that keeps the machine quiet for its arguments (one run at a time); PERFLOSS the binary.
set -u
here=$(cd "$(dirname "$0")" && pwd)
PERFLOSS=${PERFLOSS:-${CARGO_TARGET_DIR:-$here/../../target}/release/perfloss}
usage() { sed -n '2,10s/^# \?//p' "$0" >&2; exit 2; }

# judge one pair: adds its verdicts to the counts
pairs=0 losses=0 gains=0 any=0 slower=0 faster=0 same=0 unsure=0
pair() { # BASE NEW [COMPARE-ARGUMENTS…]
	local status=0 counts
	counts=$("$PERFLOSS" compare "$@" --json) || status=$?
	[ $status -le 1 ] || [ $status = 3 ] || exit $status
	counts=$(grep -o '"verdict": "[a-z_]*"' <<<"$counts" | sort | uniq -c | awk '{ gsub(/"/, "", $3); print $3 "=" $1 }')
	local slower_here=0 faster_here=0
	for count in $counts; do
		case $count in
		slower=*) slower_here=${count#*=} ;;
		faster=*) faster_here=${count#*=} ;;
		no_difference=*) same=$((same + ${count#*=})) ;;
		cannot_say=*) unsure=$((unsure + ${count#*=})) ;;
		esac
	done
	pairs=$((pairs + 1)) slower=$((slower + slower_here)) faster=$((faster + faster_here))
	[ $status = 1 ] && losses=$((losses + 1))
	[ $faster_here -gt 0 ] && gains=$((gains + 1))
	[ $((slower_here + faster_here)) -gt 0 ] && any=$((any + 1))
	[ -z "${VERBOSE:-}" ] || echo "$1 $2: $slower_here slower, $faster_here faster"
}
told() {
	[ $pairs -gt 0 ] || { echo "aa.sh: no pair of runs there" >&2; exit 2; }
	echo "$pairs comparisons: $losses with exit status 1 (a loss), $gains with a gain, $any with either"
	echo "$((slower + faster + same + unsure)) points: $slower slower, $faster faster, $same no difference, $unsure cannot say"
}

mode=${1:-} && shift || usage
case $mode in
measure)
	[ $# -ge 3 ] || usage
	dir=$1 count=$2 && shift 2
	mkdir -p "$dir"
	for ((n = 1; n <= count; n++)); do
		[ -e "$dir/$n" ] && continue
		${ALONE:-} "$PERFLOSS" run "$@" --quiet --output "$dir/$n" >/dev/null || exit
	done
	;;
judge)
	[ $# -ge 1 ] || usage
	dir=$1 && shift
	runs=${RUNS:-1}
	# Single runs: every neighbour. Groups: each run in one comparison only.
	step=$((runs == 1 ? 1 : 2 * runs))
	for ((n = 1; ; n += step)); do
		[ -e "$dir/$((n + 2 * runs - 1))/result.json" ] || break
		more=()
		for ((k = 1; k < runs; k++)); do
			more+=(--also-base "$dir/$((n + 2 * k))" --also-new "$dir/$((n + 2 * k + 1))")
		done
		pair "$dir/$n" "$dir/$((n + 1))" "${more[@]}" "$@"
	done
	told
	;;
judge-ab)
	[ $# -ge 2 ] || usage
	a=$1 b=$2 && shift 2
	runs=${RUNS:-1}
	for ((n = 1; ; n += runs)); do
		[ -e "$a/$((n + runs - 1))/result.json" ] && [ -e "$b/$((n + runs - 1))/result.json" ] || break
		more=()
		for ((k = 1; k < runs; k++)); do more+=(--also-base "$a/$((n + k))" --also-new "$b/$((n + k))"); done
		pair "$a/$n" "$b/$n" "${more[@]}" "$@"
	done
	told
	;;
*) usage ;;
esac
