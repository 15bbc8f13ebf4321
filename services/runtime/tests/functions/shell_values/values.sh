# What a shell may return, and how it is kept from evaluating what it gets.
counter=0

echo_back() { printf '%s' "$1"; }
json() { echo '{"ok": [1, 2]}'; }
raw() { printf '\377\376'; }
nothing() { :; }
outputs() { echo "name=$1" >> "$KR_OUTPUTS"; echo "url=a=b" >> "$KR_OUTPUTS"; }
bad_outputs() { echo "no equals sign" >> "$KR_OUTPUTS"; }
about() { printf '%s %s %s' "$KR_INVOCATION_ID" "$KR_CONTENT_TYPE" "$((KR_REMAINING_MS > 0))"; }
count() { counter=$((counter + 1)); printf '%s' "$counter"; }
large() { head -c 1048577 /dev/zero | tr '\0' x; }
largest() { head -c 1048576 /dev/zero | tr '\0' x; }
flood() { head -c 20000000 /dev/zero | tr '\0' x >&2; printf 'kept'; }
background() { (trap '' TERM; exec sleep 300) & (setsid sleep 300 &); printf 'answered'; }
forever() { while :; do :; done; }
sleeps() { sleep 300; }
stubborn() { trap '' TERM INT; while :; do sleep 1; done; }
