sleep 300
run() { :; }
