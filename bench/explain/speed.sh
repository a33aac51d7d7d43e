#!/bin/sh
# How fast a recorded storm is explained, on one core, from decoding to verdict; and how much memory that takes for a short and a long trace.
#
#   bench/explain/speed.sh [SECONDS]
#
# Needs root (it records create_unlink on XFS). The bar: 5 million events a second.
set -eu
seconds=${1:-4}
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
cargo build --release -q -p perfloss
cargo build --release -q -p explain --example explain
perfloss=$target/release/perfloss
explain=$target/release/examples/explain
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

record() { # NAME SECONDS
	"$perfloss" record -q --output "$work/$1.result" --trace "$work/$1.trace" -- \
		"$perfloss" run create_unlink -t 2 --on xfs --rounds 1 -s "$2" -q --no-capture --output "$work/$1.run" >/dev/null
}

record short 1
record long "$seconds"
cpu=$(taskset -pc $$ | sed 's/.*: //; s/[,-].*//')
for trace in short long; do
	for round in 1 2 3 4 5; do
		taskset -c "$cpu" "$explain" "$work/$trace.trace" --all --time
	done
	/usr/bin/env time -f "$trace: peak memory %M KiB, file included" "$explain" "$work/$trace.trace" --all >/dev/null
done
