#!/bin/bash
# Does taking stacks change the hand-offs of the AGI? The storm of two tasks on one directory of XFS, captured with and without stacks in
# turn: its throughput is unsteady, so the distribution of the hand-offs is compared.
#
#   bench/capture/handoffs.sh ROUNDS [SECONDS]
set -u
rounds=$1 seconds=${2:-1.5}
here=$(cd "$(dirname "$0")" && pwd)
RECORD=${RECORD:-${CARGO_TARGET_DIR:-$here/../../target}/release/examples/record}
if [ -z "${IN_NAMESPACE:-}" ]; then
	IN_NAMESPACE=$(mktemp -d /tmp/perfloss-handoffs.XXXXXX) exec unshare -m --propagation private "$0" "$@"
fi
work=$IN_NAMESPACE
mount -t tmpfs tmpfs "$work" || exit 4
trap 'cd /; umount -q "$work/mnt"; umount -l "$work"; rmdir "$work"' EXIT
gcc -O2 -o "$work/loads" "$here/loads.c" || exit 4
mkdir "$work/mnt"
truncate -s 4G "$work/img"
mkfs.xfs -q "$work/img" && mount -o loop "$work/img" "$work/mnt" || exit 4
for ((round = 1; round <= rounds; round++)); do
	for how in "" --stackless; do
		"$work/loads" create_unlink "$(echo "$seconds + 0.8" | bc)" 2 "$work/mnt" >"$work/rate" &
		sleep 0.3
		"$RECORD" "$seconds" --handoffs $how >"$work/out" 2>/dev/null
		wait
		echo "${how:---stacks}: $(cut -d" " -f1 "$work/rate") ops/s: $(grep handoffs "$work/out")"
	done
done
