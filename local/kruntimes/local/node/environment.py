"""What a container's command is started with: environment, arguments, and paths that exist on this machine.

A container sees its mounts at fixed paths; a process of this machine has them in folders of its own. So every mount
path in a command, an argument or an environment value is rewritten to the folder that stands for it. Pure.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kruntimes.local.node.pods import Container, EnvVar, FieldRef, NodePod

_REFERENCE = re.compile(r"\$(?:\$|\(([-._a-zA-Z][-._a-zA-Z0-9]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class CannotRun(ValueError):
    """The container asks for something that this node does not have; the message is a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What fieldRefs can say of a Pod on this node."""

    pod: NodePod
    pod_ip: str
    host_ip: str


def field(reference: FieldRef, facts: Facts) -> str:
    """Returns what a fieldRef means; raises CannotRun for a path that Kubernetes does not have either."""
    meta = facts.pod.metadata
    if match := _SUBSCRIPT.fullmatch(reference.field_path):
        return (meta.labels if match[1] == "labels" else meta.annotations).get(match[2], "")
    fields: dict[str, str] = {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace,
        "metadata.uid": meta.uid,
        "spec.nodeName": facts.pod.spec.node_name,
        "spec.serviceAccountName": facts.pod.spec.service_account_name,
        "status.hostIP": facts.host_ip,
        "status.podIP": facts.pod_ip,
        "status.podIPs": facts.pod_ip,
    }
    if reference.field_path not in fields:
        raise CannotRun(f"fieldRef {reference.field_path!r} is not known")
    return fields[reference.field_path]


def expand(text: str, values: Mapping[str, str]) -> str:
    """Kubernetes' `$(NAME)`: replaced where NAME is known, kept where not; `$$` is one dollar sign."""

    def one(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        return values.get(match[1], match[0])

    return _REFERENCE.sub(one, text)


def rewrite(text: str, mounts: Mapping[str, str]) -> str:
    """Replaces every mount path in *text* by its folder.

    A path counts where it stands at the beginning of the text or after a character that cannot belong to a longer
    path or a host name (`--config=`, `unix://`, a blank), and ends at a `/` or at a character that ends a path. The
    longest mount path wins, and what was put in is not read again.
    """
    if not mounts:
        return text
    paths = "|".join(re.escape(path) for path in sorted(mounts, key=len, reverse=True))
    pattern = rf"(?<![\w.\-\]])({paths})(?=$|[/:,;\s\"'?\])}}])"
    return re.sub(pattern, lambda match: mounts[match[1]], text)


def variables(
    variables: Sequence[EnvVar], *, facts: Facts, lookup: Callable[[EnvVar], str | None], base: Mapping[str, str]
) -> dict[str, str]:
    """Returns the container's environment over *base*, in the order of the list, `$(NAME)` expanded.

    lookup: the value of a ConfigMap's or Secret's key; None leaves the variable out (optional and absent).
    """
    values = dict(base)
    for variable in variables:
        source = variable.value_from
        if source is None:
            values[variable.name] = expand(variable.value, values)
        elif source.field_ref is not None:
            values[variable.name] = field(source.field_ref, facts)
        elif source.config_map_key_ref is not None or source.secret_key_ref is not None:
            found = lookup(variable)
            if found is not None:
                values[variable.name] = found
        else:
            raise CannotRun(f"environment variable {variable.name}: this kind of valueFrom is not known")
    return values


def command(container: Container, values: Mapping[str, str]) -> list[str]:
    """Returns command and arguments, `$(NAME)` expanded; raises CannotRun where only an image is named."""
    if not container.command:
        raise CannotRun(f"container {container.name} names no command; krt dev runs commands, not images")
    return [expand(word, values) for word in (*container.command, *container.args)]
