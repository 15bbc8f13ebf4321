# Runs commands of which some fail; only the function's own status decides.
check() {
    ls /nowhere
    grep nothing /etc/hostname
    echo "a warning" >&2
    case "$1" in
        *fail*) echo "giving up" >&2; return 7 ;;
    esac
    printf 'checked'
}
