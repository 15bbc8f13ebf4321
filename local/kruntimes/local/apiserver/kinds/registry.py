"""Which rules are whose. Pure."""

from kruntimes.local.apiserver.kinds import data, namespaces, pods, replicasets, services, small
from kruntimes.local.apiserver.parts import Act
from kruntimes.local.apiserver.strategy import Make

STRATEGIES: dict[tuple[str, str], Make] = {
    ("", "configmaps"): data.ConfigMaps,
    ("", "secrets"): data.Secrets,
    ("", "namespaces"): namespaces.Namespaces,
    ("", "pods"): pods.Pods,
    ("", "services"): services.Services,
    ("", "serviceaccounts"): small.ServiceAccounts,
    ("", "events"): small.Events,
    ("", "nodes"): small.Nodes,
    ("", "persistentvolumeclaims"): small.Claims,
    ("apps", "replicasets"): replicasets.ReplicaSets,
    ("coordination.k8s.io", "leases"): small.Leases,
    ("discovery.k8s.io", "endpointslices"): small.EndpointSlices,
}
"""By group and plural."""

ACTS: dict[tuple[str, str, str], Act] = {
    ("", "pods", "binding"): pods.bind,
    ("", "pods", "eviction"): pods.evict,
}
"""By group, plural and subresource."""
