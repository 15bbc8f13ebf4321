#!/usr/bin/env bash
# The end-to-end tests on kind: makes a cluster of its own, runs `make e2e` on it, and removes it.
# Needs docker (or podman), kind, kubectl and helm. KEEP=1 leaves the cluster standing.
set -euo pipefail
cd "$(dirname "$0")/.."

name=${KIND_CLUSTER:-kruntimes-e2e}
KUBECONFIG=$(mktemp)
export KUBECONFIG
finish() {
    [ -n "${KEEP:-}" ] && echo "the cluster stays: export KUBECONFIG=$KUBECONFIG" && return
    kind delete cluster --name "$name"
    rm -f "$KUBECONFIG"
}
trap finish EXIT

# The tests call the gateway at node port 30443; this maps it to this machine, where the node's address may not be reachable.
kind create cluster --name "$name" --wait 120s --config - <<'END'
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes:
  - role: control-plane
    extraPortMappings:
      - {containerPort: 30443, hostPort: 30443, listenAddress: 127.0.0.1}
END

E2E_ADDRESS=127.0.0.1 LOAD_IMAGE="kind load image-archive --name $name" make e2e
