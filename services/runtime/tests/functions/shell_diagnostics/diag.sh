# Commands that fail on the way, text on standard error, and a function whose own status decides.
set -o pipefail

works() {
    ls /does/not/exist
    false
    echo "warning: $1" >&2
    echo "fine"
}

fails() {
    echo "half an answer"
    echo "cannot go on" >&2
    return 3
}

leaves() {
    exit 4
}

strict() {
    set -e
    false
    echo "never"
}

killed() {
    kill -SEGV $BASHPID
}
