"""The API as one synchronous value: verbs on resources, with every rule between a decoded request and the store. Pure.

The shell decodes, authenticates, authorises and encodes; the control plane's own loops call the same methods. Nothing
here awaits, so each call is one transaction. What is returned is stored: it must not be changed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from kruntimes.local.apiserver import checks, metadata, shapes
from kruntimes.local.apiserver.parts import APPLY_PATCH, Json, Parts
from kruntimes.local.apiserver.request import SYSTEM, User
from kruntimes.local.apiserver.resources import Resource, Resources
from kruntimes.local.apiserver.status import (
    STALE,
    About,
    Cause,
    StatusError,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
    unsupported_media_type,
)  # fmt: skip
from kruntimes.local.apiserver.store import FIRST_VERSION, Event, Store
from kruntimes.local.apiserver.strategy import Context, DeleteOptions, Strategies, Strategy

Listener = Callable[[Event], None]
Edit = Callable[[Json], Json]

NAMESPACES = ("", "namespaces")
_COUNTED = ("", "scale")
"""Writes that metadata.generation counts: binding a Pod is none, though it changes the spec."""
GENERATE_TRIES = 8
"""Names drawn for one generateName before it is given up, as the real server does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """How a write is asked for.

    strictness: Ignore, Warn or Strict, for unknown fields and for the *duplicates* that the decoder found. warnings:
    filled by the call. manager: the loops write under the name that they have in a real control plane.
    """

    user: User = SYSTEM
    manager: str = "kube-controller-manager"
    dry_run: bool = False
    strictness: str = "Ignore"
    duplicates: Sequence[str] = ()
    warnings: list[str] = field(default_factory=list)


_OWN = Call()

SHOWN = 1024
"""Characters of a patch that a refusal repeats."""


def private(obj: Json) -> Json:
    """A copy that shares nothing with *obj*; JSON is the quickest way there."""
    copied: Json = msgspec.json.decode(msgspec.json.encode(obj))
    return copied


class Api:
    """resources, store and strategies may be read by anyone; they are written here alone.

    now, uid, suffix: where time and randomness come from. size: bytes of an object, for the history's bound.
    first_version: see `Store`.
    """

    def __init__(
        self,
        parts: Parts,
        *,
        now: Callable[[], datetime],
        uid: Callable[[], str],
        suffix: Callable[[], str],
        size: Callable[[Json], int],
        first_version: int = FIRST_VERSION,
    ) -> None:
        self.parts = parts
        self.resources = Resources.built_in()
        self.strategies = Strategies(parts.strategies)
        self._listeners: list[Listener] = []
        self.store = Store(size=size, on_write=self._wrote, first_version=first_version)
        self._now, self._uid, self._suffix = now, uid, suffix
        for attach in parts.attach:
            attach(self)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Calls *listener* with each write, right after it; it must not block and must not write (put a key into a
        set and wake a task). Returns what ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _wrote(self, event: Event) -> None:
        for listener in tuple(self._listeners):
            listener(event)

    def context(self, call: Call = _OWN) -> Context:
        """What the rules may know of a write that happens now."""
        return Context(
            user=call.user, now=self._now(), store=self.store, uid=self._uid, suffix=self._suffix,
            dry_run=call.dry_run,
        )  # fmt: skip

    def registered(self, api_version: str, kind: str) -> bool:
        """Whether there is a resource of that kind."""
        return self.resources.of_kind(api_version, kind) is not None

    # ------------------------------------------------------------ verbs

    def get(self, resource: Resource, namespace: str, name: str) -> Json:
        """The object; raises NotFound."""
        return self.store.get(resource, namespace, name)

    def create(self, resource: Resource, namespace: str, obj: Json, call: Call = _OWN) -> Json:
        """Creates *obj* (a private copy, changed in place). Raises whatever `status` has for it."""
        return self._create(resource, namespace, obj, call, owned=False)

    def _create(self, resource: Resource, namespace: str, obj: Json, call: Call, *, owned: bool) -> Json:
        """The rules of every create. owned: managedFields have been seen to."""
        ctx, strategy = self.context(call), self.strategies.of(resource)
        meta = checks.metadata_of(obj)
        checks.place(resource, namespace, meta)
        self._known(resource, obj, strategy, call, applied=owned)
        self._namespace_open(resource, namespace, meta.get("name", ""))
        if meta.get("resourceVersion"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"):
            meta.pop(key, None)
        if not owned:
            # Before the rules: what they fill in is nobody's.
            obj = self.parts.ownership.written(
                resource, obj, None, manager=call.manager, subresource="", timestamp=ctx.timestamp
            )
            meta = obj["metadata"]
        meta["uid"], meta["creationTimestamp"] = ctx.uid(), ctx.timestamp
        if strategy.generation:
            meta["generation"] = 1
        if meta.get("generateName") and not meta.get("name"):
            meta["name"] = self._fresh_name(resource, namespace, meta["generateName"])
        strategy.prepare_create(obj, ctx)
        for admit in self.parts.admits:
            admit(resource, "", obj, None, ctx)
        causes = metadata.validate(meta, rule=strategy.names, any_finalizer=strategy.any_finalizer)
        causes += strategy.validate(obj, ctx)
        if causes:
            raise invalid(resource.about_kind(meta.get("name", "")), causes)
        call.warnings.extend(_warnings(strategy, obj, None))
        return self._store_new(resource, obj, call)

    def update(
        self, resource: Resource, namespace: str, name: str, obj: Json, call: Call = _OWN, *, subresource: str = ""
    ) -> tuple[Json, bool]:
        """Puts *obj* (a private copy) in the place of what is there; returns it and whether it is new.

        Its metadata.resourceVersion and uid, if any, are preconditions.
        """
        meta = checks.metadata_of(obj)
        checks.place(resource, namespace, meta)
        checks.named(meta, name)
        strategy = self.strategies.of(resource)
        if strategy.made_by_put and not subresource and self.store.peek(resource.key, namespace, name) is None:
            return self.create(resource, namespace, obj, call), True
        stored = self.store.get(resource, namespace, name)
        self._known(resource, obj, strategy, call)
        uid = stored["metadata"]["uid"]
        if meta.setdefault("uid", uid) != uid:
            why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {uid}"
            raise conflict(resource.about(name), why)
        unconditional = not meta.get("resourceVersion")
        return self._change(resource, stored, obj, call, subresource, unconditional=unconditional), False

    def change(
        self, resource: Resource, namespace: str, name: str, edit: Edit, call: Call = _OWN, *, subresource: str = ""
    ) -> Json:
        """Applies *edit* to a private copy of the object and updates it: what loops write with."""
        stored = self.store.get(resource, namespace, name)
        return self._change(resource, stored, edit(private(stored)), call, subresource)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: object,
        media: str,
        call: Call = _OWN,
        *,
        subresource: str = "",
        force: bool = False,
    ) -> tuple[Json, bool]:
        """Patches the object; *patch* is decoded, *media* is its type. Returns the object and whether it is new."""
        if media == APPLY_PATCH:
            return self._apply(resource, namespace, name, patch, call, subresource=subresource, force=force)
        patcher = self.parts.patches.get(media)
        if patcher is None:
            raise unsupported_media_type([*self.parts.patches, APPLY_PATCH])
        stored = self.store.get(resource, namespace, name)
        obj = private(patcher(resource, resource.shows(stored), patch))
        if not isinstance(obj, dict):
            raise bad_request("the patched value is not an object")
        checks.place(resource, namespace, checks.metadata_of(obj))
        checks.named(obj["metadata"], name)
        for key, wanted in (("apiVersion", resource.api_version), ("kind", resource.kind)):
            if obj.setdefault(key, wanted) != wanted:
                cause = metadata.invalid_value(key, obj[key], f"must be {wanted}")
                raise invalid(resource.about_kind(name), [cause])
        self._known(resource, obj, self.strategies.of(resource), call, patch=patch)
        unconditional = not obj["metadata"].get("resourceVersion")
        return self._change(resource, stored, obj, call, subresource, unconditional=unconditional), False

    def delete(
        self, resource: Resource, namespace: str, name: str, options: DeleteOptions | None = None, call: Call = _OWN
    ) -> tuple[Json, bool]:
        """Deletes, or begins to; returns the object as it then is, and whether it is gone.

        Raises NotFound, and Conflict where a precondition does not hold.
        """
        options = options or DeleteOptions()
        stored = self.store.get(resource, namespace, name)
        meta = stored["metadata"]
        checks.preconditions(resource, stored, options)
        ctx, strategy = self.context(call), self.strategies.of(resource)
        grace = strategy.grace(stored, options, ctx)
        finalizers = checks.finalizers(meta.get("finalizers") or [], options)
        if not finalizers and grace == 0 and strategy.removable(stored):
            if call.dry_run:
                return stored, True
            return self.store.remove(resource, namespace, name), True
        if "deletionTimestamp" in meta and grace >= meta.get("deletionGracePeriodSeconds", 0) and (
            finalizers == (meta.get("finalizers") or [])
        ):  # fmt: skip
            return stored, False
        obj = private(stored)
        new = obj["metadata"]
        begun = datetime.fromisoformat(meta["deletionTimestamp"]) - timedelta(
            seconds=meta.get("deletionGracePeriodSeconds", 0)
        ) if "deletionTimestamp" in meta else ctx.now  # fmt: skip
        new["deletionTimestamp"] = (begun + timedelta(seconds=grace)).strftime("%Y-%m-%dT%H:%M:%SZ")
        new["deletionGracePeriodSeconds"] = grace
        if finalizers:
            new["finalizers"] = finalizers
        if "generation" in new and "deletionTimestamp" not in meta:
            new["generation"] += 1
        strategy.begin_deletion(obj, ctx)
        return self._replace(resource, obj, call, expect=None), False

    def delete_each(
        self,
        resource: Resource,
        namespace: str | None,
        matches: Callable[[Json], bool],
        options: DeleteOptions | None = None,
        call: Call = _OWN,
    ) -> Iterator[Json]:
        """Deletes every object that *matches* now, one with each step; yields them as they then are.

        Others may write between the steps; what is gone by then is passed over.
        """
        for obj in [obj for obj in self.store.list(resource.key, namespace) if matches(obj)]:
            meta = obj["metadata"]
            try:
                yield self.delete(resource, meta.get("namespace", ""), meta["name"], options, call)[0]
            except StatusError as error:
                if error.code != 404:
                    raise

    # ------------------------------------------------------------ steps

    def _known(
        self,
        resource: Resource,
        obj: Json,
        strategy: Strategy,
        call: Call,
        *,
        patch: object = None,
        applied: bool = False,
    ) -> None:
        """Holds *obj* to its types, defaults and prunes; says which fields are unknown as the caller wants it.

        patch: what *obj* comes from, for the refusal. applied: it comes from a server-side apply, where a value that
        the schema lets pass and the type does not, such as a wrong quantity, counts as an error of the server's.
        """
        handled = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'

        def refused(why: str) -> StatusError:
            if patch is None:
                return bad_request(f"{handled}: {why}")
            return invalid(About(), [metadata.invalid_value("patch", sent[:SHOWN], why)])

        sent = "" if patch is None else msgspec.json.encode(obj, order="sorted").decode()
        try:
            unknown = shapes.fit("Object" if resource.custom else resource.kind, obj)
            metadata.tidy(obj["metadata"])
            unknown += strategy.default(obj)
        except shapes.Misfit as misfit:
            if applied and not resource.custom:
                raise StatusError(500, "", checks.unconvertible(resource, obj["metadata"], str(misfit))) from None
            raise refused(str(misfit)) from None
        said = [f'unknown field "{path}"' for path in unknown]
        said += [f'duplicate field "{path}"' for path in call.duplicates]
        if said and call.strictness == "Strict":
            raise refused(f"strict decoding error: {', '.join(said)}")
        if call.strictness == "Warn":
            call.warnings.extend(said)

    def _namespace_open(self, resource: Resource, namespace: str, name: str) -> None:
        """What is created needs a namespace that exists and is not going away."""
        if not resource.namespaced:
            return
        found = self.store.peek(NAMESPACES, "", namespace)
        if found is None:
            raise not_found(About(kind="namespaces", name=namespace))
        if found.get("status", {}).get("phase") == "Terminating":
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            refusal = forbidden(resource.about(name), why)
            cause = Cause("metadata.namespace", "NamespaceTerminating", f"namespace {namespace} is being terminated")
            refusal.causes = (cause,)
            raise refusal

    def _fresh_name(self, resource: Resource, namespace: str, base: str) -> str:
        for _ in range(GENERATE_TRIES):
            name = metadata.generated(base, self._suffix)
            if self.store.peek(resource.key, namespace if resource.namespaced else "", name) is None:
                break
        return name

    def _store_new(self, resource: Resource, obj: Json, call: Call) -> Json:
        obj = {"apiVersion": resource.api_version, "kind": resource.kind} | obj
        obj["apiVersion"], obj["kind"] = resource.api_version, resource.kind
        if call.dry_run:
            self.store.vacant(resource, obj)
            return obj
        return self.store.create(resource, obj)

    def _change(
        self,
        resource: Resource,
        stored: Json,
        obj: Json,
        call: Call,
        subresource: str,
        *,
        unconditional: bool = False,
        owned: bool = False,
    ) -> Json:
        """The rules of every update. owned: managedFields have been seen to."""
        ctx, strategy = self.context(call), self.strategies.of(resource)
        meta, old = obj["metadata"], stored["metadata"]
        name = old["name"]
        if unconditional and not strategy.unconditional:
            cause = metadata.invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(resource.about(name), [cause])
        expected = meta.get("resourceVersion") or old["resourceVersion"]
        if not expected.isdecimal():
            raise StatusError(500, "", f"strconv.ParseUint: parsing {metadata.quoted(expected)}: invalid syntax")
        if expected != old["resourceVersion"]:
            raise conflict(resource.about(name), STALE)
        metadata.carry(meta, old)
        if not owned:
            obj = self.parts.ownership.written(
                resource, obj, stored, manager=call.manager, subresource=subresource, timestamp=ctx.timestamp
            )
        strategy.prepare_update(obj, stored, ctx, subresource)
        meta = obj["metadata"]
        for admit in self.parts.admits:
            admit(resource, subresource, obj, stored, ctx)
        if strategy.generation and subresource in _COUNTED and strategy.counts(obj, stored):
            meta["generation"] = old.get("generation", 0) + 1
        causes = metadata.validate(meta, rule=strategy.names, any_finalizer=strategy.any_finalizer)
        causes += metadata.validate_update(meta, old)
        causes += strategy.validate_update(obj, stored, ctx, subresource)
        if causes:
            raise invalid(resource.about_kind(name), causes)
        call.warnings.extend(_warnings(strategy, obj, stored))
        obj["apiVersion"], obj["kind"] = stored["apiVersion"], stored["kind"]
        for key, value in stored.items():
            # Versions of an object share what they have in common: a source of 256 KiB is held once.
            if key != "metadata" and key in obj and obj[key] == value:
                obj[key] = value
        if self._finished(strategy, obj):
            if call.dry_run:
                return obj
            # Watchers are told of the object as it was before this write, which is itself stored nowhere.
            self.store.remove(resource, old.get("namespace", ""), name)
            return obj
        return self._replace(resource, obj, call, expect=old["resourceVersion"])

    def _finished(self, strategy: Strategy, obj: Json) -> bool:
        """Whether the last finalizer of an object that is being deleted is gone."""
        meta = obj["metadata"]
        return (
            "deletionTimestamp" in meta
            and not meta.get("finalizers")
            and meta.get("deletionGracePeriodSeconds", 0) == 0
            and strategy.removable(obj)
        )

    def _replace(self, resource: Resource, obj: Json, call: Call, *, expect: str | None) -> Json:
        if call.dry_run:
            return obj
        return self.store.replace(resource, obj, expect=expect)

    def _apply(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: object,
        call: Call,
        *,
        subresource: str,
        force: bool,
    ) -> tuple[Json, bool]:
        """Server-side apply: the merge is the ownership's, the rules are those of create or update."""
        if not isinstance(patch, dict):
            raise bad_request("the body of an apply must be an object")
        stored = self.store.peek(resource.key, namespace if resource.namespaced else "", name)
        if stored is None and subresource:
            raise not_found(resource.about(name))
        given = patch.get("metadata")
        whole = dict(given) if isinstance(given, dict) else {}
        meta = checks.metadata_of(patch)
        checks.place(resource, namespace, meta)
        meta.setdefault("name", name)
        checks.named(meta, name)
        # Who applies an empty map owns it, though it is not kept.
        patch = {**patch, "metadata": {**whole, **meta}}
        strategy, ctx = self.strategies.of(resource), self.context(call)
        merged = private(
            self.parts.ownership.applied(
                resource, patch, stored, manager=call.manager, force=force, subresource=subresource,
                timestamp=ctx.timestamp,
            )
        )  # fmt: skip
        if stored is not None:
            self._known(resource, merged, strategy, call, applied=True)
            return self._change(resource, stored, merged, call, subresource, owned=True), False
        return self._create(resource, namespace, merged, call, owned=True), True


def _warnings(strategy: Strategy, obj: Json, old: Json | None) -> list[str]:
    """What the caller of a write that is taken should know."""
    kept = metadata.finalizer_warnings(obj["metadata"]) if strategy.any_finalizer else []
    return kept + strategy.warnings(obj, old)
