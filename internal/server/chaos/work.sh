#!/bin/bash
# work.sh ledger mark workflow job step token lines pause code
# Prints numbered lines with pauses between them, notes each moment in the ledger, and exits with the code. Without a pause
# the lines come as fast as they can, and the ledger has the beginning and the end.
export LC_ALL=C # the decimal point of the clock
ledger=$1 token=$6 step=$5
note() {
  printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "${fields[@]}" "${TMPDIR##*/}" "$1" "$EPOCHREALTIME" >>"$ledger"
}
fields=("$2" "$3" "$4" "$5" "$6")
note begin
for ((n = 1; n <= $7; n++)); do
  [ "$8" = 0 ] || sleep "$8"
  echo "$token $step $n/$7"
  [ "$8" = 0 ] || note line
done
note end
[ "$9" = 0 ] || echo "$step fails on purpose" >&2 # else the system would repeat the lines as the reason
exit "$9"
