#!/bin/sh
# How fast a recorded storm is explained, on one core, from decoding to verdict; and how much memory that takes for a short and a long trace.
#
#   bench/explain/speed.sh [SECONDS]
#
# Needs root (it records create_unlink on XFS). The bar: 5 million events a second, and a peak of memory that does not grow with the trace.
set -eu
seconds=${1:-60}
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
cargo build --release -q -p perfloss
cargo build --release -q -p explain --example explain
perfloss=$target/release/perfloss
explain=$target/release/examples/explain
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

record() { # NAME SECONDS; leaves with 3 if the machine was not quiet, which matters little here
	"$perfloss" record -q --output "$work/$1.result" --trace "$work/$1.trace" -- \
		"$perfloss" run create_unlink -t 2 --on xfs --rounds 1 -s "$2" -q --no-capture --output "$work/$1.run" \
		>/dev/null || [ $? -eq 3 ]
}

record short 4
record long "$seconds"
cpu=$(taskset -pc $$ | sed 's/.*: //; s/[,-].*//')
for _ in 1 2 3 4 5 6 7 8 9 10 11; do
	taskset -c "$cpu" "$explain" "$work/short.trace" --all --time
done | tee "$work/times"
sed 's/.*: //' "$work/times" | sort -n | sed -n '6s/^/median: /p'
for trace in short long; do
	taskset -c "$cpu" "$explain" "$work/$trace.trace" --all --time
	/usr/bin/env time -f "$trace: peak memory %M KiB" "$explain" "$work/$trace.trace" --all >/dev/null
done
