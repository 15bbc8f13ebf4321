"""From a container's specification to what is executed: command, environment, working folder. Reads, starts nothing."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from kruntimes.local.node import environment
from kruntimes.local.node.context import Access, Context
from kruntimes.local.node.environment import CannotRun, Facts
from kruntimes.local.node.pods import Container, EnvVar
from kruntimes.local.node.volumes import Secret

RUNTIME, RUNTIMED = "runtime", "runtimed"
"""Outside Kubernetes the Runtime Server knows runtimed by its PID (design §13, peer identity on our unix sockets)."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything that a process is started with."""

    command: list[str]
    env: dict[str, str]
    cwd: Path


def mounts(container: Container, folder: Path) -> dict[str, str]:
    """The folder that stands for each mount path; *folder* is the Pod's."""
    return {
        mount.mount_path.rstrip("/"): str(folder / "v" / mount.name / mount.sub_path).rstrip("/")
        for mount in container.volume_mounts
    }


def prepare(
    container: Container, *, context: Context, facts: Facts, folder: Path, secrets: Mapping[str, Secret], runtimed: int
) -> Launch:
    """Returns what *container* is started with. runtimed: the PID of the Pod's runtimed, or 0.

    Raises CannotRun with a sentence.
    """
    places = mounts(container, folder)
    own = folder / "c" / container.name
    temporary = own / "tmp"
    temporary.mkdir(mode=0o700, parents=True, exist_ok=True)
    base = {
        "PATH": context.path,
        "HOME": str(own),
        "TMPDIR": str(temporary),
        "LANG": "C.UTF-8",
        "HOSTNAME": facts.pod.metadata.name,
    }
    kubeconfig = _kubeconfig(container, context=context, facts=facts, folder=folder)
    if kubeconfig is not None:
        base["KUBECONFIG"] = str(kubeconfig)
    if container.name == RUNTIME and runtimed:
        base["KRUNTIMES_RUNTIMED_PID"] = str(runtimed)

    def lookup(variable: EnvVar) -> str | None:
        return _lookup(variable, context=context, facts=facts, secrets=secrets)

    env = environment.variables(container.env, facts=facts, lookup=lookup, base=base)
    command = [environment.rewrite(word, places) for word in environment.command(container, env)]
    command[0] = context.programs.get(command[0], command[0])
    cwd = Path(environment.rewrite(container.working_dir, places)) if container.working_dir else own
    if not cwd.is_dir():
        cwd = own
    return Launch(command, {name: environment.rewrite(value, places) for name, value in env.items()}, cwd)


def _lookup(variable: EnvVar, *, context: Context, facts: Facts, secrets: Mapping[str, Secret]) -> str | None:
    source = variable.value_from
    assert source is not None
    reference = source.config_map_key_ref or source.secret_key_ref
    assert reference is not None
    key = f"{facts.pod.metadata.namespace}/{reference.name}"
    if source.config_map_key_ref is not None:
        held = context.config_maps.get(key)
        value = held.data.get(reference.key) if held is not None else None
    else:
        secret = secrets.get(key)
        value = secret.text(reference.key) if secret is not None else None
    if value is None and not reference.optional:
        raise CannotRun(f"environment variable {variable.name}: {reference.name} has no key {reference.key}")
    return value


def _kubeconfig(container: Container, *, context: Context, facts: Facts, folder: Path) -> Path | None:
    """Writes a kubeconfig for a container that mounts a ServiceAccount token; None for one that does not."""
    for volume in facts.pod.spec.volumes:
        for source in volume.projected.sources if volume.projected is not None else ():
            token = source.service_account_token
            if token is None or token.audience or all(m.name != volume.name for m in container.volume_mounts):
                continue
            path = folder / "c" / container.name / "kubeconfig"
            token_file = folder / "v" / volume.name / token.path
            write_kubeconfig(path, access=context.access, namespace=facts.pod.metadata.namespace, token_file=token_file)
            return path
    return None


def write_kubeconfig(path: Path, *, access: Access, namespace: str, token_file: Path) -> None:
    """Writes a kubeconfig whose user acts with the token in *token_file*."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "krt-dev",
        "clusters": [
            {"name": "krt-dev", "cluster": {"server": access.server, "certificate-authority": str(access.ca_file)}}
        ],
        "users": [{"name": "krt-dev", "user": {"tokenFile": str(token_file)}}],
        "contexts": [{"name": "krt-dev", "context": {"cluster": "krt-dev", "user": "krt-dev", "namespace": namespace}}],
    }
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        yaml.safe_dump(document, file)
