fine() { echo fine; }

broken() {
    if true; then
        echo "no fi"
}
