# The warm shell of the Bash host: sources the function's file once, then runs each call in a subshell of its own.
#
# Arguments: file, function, and descriptors: calls come in, status goes out, the function's standard output,
# the payload, the outputs. A call is one line: invocation id, milliseconds left, content type. The payload is read
# into a variable and passed as one quoted argument; nothing of a call is ever evaluated.
__kr_file=$1 __kr_function=$2 __kr_in=$3 __kr_out=$4 __kr_stdout=$5 __kr_input=$6 __kr_outputs=$7
set --

builtin source "$__kr_file" {__kr_in}<&- {__kr_out}>&- {__kr_stdout}>&- {__kr_input}<&- {__kr_outputs}>&-

# A failing command of this loop must not end it, and its commands are nobody's trace; a call gets its options back.
__kr_flags=$-
set +exv
if ! builtin declare -F -- "$__kr_function" >/dev/null; then
    builtin printf 'missing\n' >&"$__kr_out"
    exit 1
fi
builtin printf 'ready\n' >&"$__kr_out"

while IFS=' ' builtin read -r -u "$__kr_in" __kr_id __kr_left __kr_type; do
    # Reads up to the end, since a payload holds no NUL; the status of that is 1.
    LC_ALL=C IFS='' builtin read -r -d '' __kr_payload <&"$__kr_input" || :
    # In the background, so that `set -e` and an ERR trap of the file mean in the function what they say.
    (
        export KR_INVOCATION_ID=$__kr_id KR_REMAINING_MS=$__kr_left KR_CONTENT_TYPE=$__kr_type
        export KR_OUTPUTS=/dev/fd/$__kr_outputs
        case $__kr_flags in *e*) set -e ;; esac
        case $__kr_flags in *v*) set -v ;; esac
        case $__kr_flags in *x*) set -x ;; esac
        "$__kr_function" "$__kr_payload"
    ) >&"$__kr_stdout" {__kr_in}<&- {__kr_out}>&- {__kr_input}<&- {__kr_stdout}>&- &
    __kr_status=0
    builtin wait $! || __kr_status=$?
    builtin printf '%d\n' "$__kr_status" >&"$__kr_out"
done
