#!/bin/sh
# Fails a build in which a function got slower, or is called more often.
#
#   gate.sh OLD NEW CONDITION...
#
# OLD and NEW are programs that were built by `everycall cc` before and after the change; CONDITION
# is one of `everycall report --fail-if`. Exit code: 0 where no condition holds, 3 where one does, 4
# where the runs can't tell. RUNS says how often each program runs.
set -eu
[ $# -ge 3 ] || { echo "usage: gate.sh OLD NEW CONDITION..." >&2; exit 2; }
old=$1 new=$2
shift 2
traces=$(mktemp -d)
trap 'rm -rf "$traces"' EXIT
# By turns: what makes the machine slower meanwhile makes both slower.
for run in $(seq "${RUNS:-5}"); do
    everycall record --quiet -o "$traces/old-$run.ect" -- "$old" > "$traces/printed"
    everycall record --quiet -o "$traces/new-$run.ect" -- "$new" > "$traces/printed"
done
for condition; do
    shift
    set -- "$@" --fail-if "$condition"
done
# A report of the run that failed is what its author reads first.
status=0
everycall report --limit 10 --diff "$traces"/old-*.ect --against "$traces"/new-*.ect "$@" || status=$?
exit "$status"
