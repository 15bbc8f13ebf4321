echo "cannot be loaded" >&2
exit 7
