"""x-kubernetes-validations: the rules of a schema in CEL, compiled once and evaluated over an object. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kruntimes.local.apiserver.cel import types
from kruntimes.local.apiserver.cel.compiler import compile_expression
from kruntimes.local.apiserver.cel.errors import EvaluationError, NoOverload, OverBudget, WrongResult
from kruntimes.local.apiserver.cel.program import CALL_BUDGET, OBJECT_BUDGET, Program
from kruntimes.local.apiserver.cel.schema_types import declared, seen, with_type_fields
from kruntimes.local.apiserver.cel.values import NONE, Optional, of
from kruntimes.local.apiserver.schema import faults
from kruntimes.local.apiserver.schema.fieldpaths import normalized
from kruntimes.local.apiserver.schema.structural import ABSENT, Json, Node
from kruntimes.local.apiserver.schema.validation import NO_PATH
from kruntimes.local.apiserver.status import Cause

MAX_MESSAGE = 5 * 1024
"""Bytes that a messageExpression may make."""
EXHAUSTED = "validation failed due to running out of cost budget, no further validation rules will be run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. field: where its fault is told, relative to its place, such as `.runtime`."""

    program: Program
    text: str
    message: str = ""
    wording: Program | None = None
    reason: str = faults.INVALID
    field: str = ""
    optional_old: bool = False

    @property
    def transition(self) -> bool:
        """Whether it compares with what was there before."""
        return "oldSelf" in self.program.uses


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules at one place of a schema, and below it. Places without any are left out."""

    node: Node
    here: tuple[Rule, ...] = ()
    properties: Mapping[str, "Rules"] = field(default_factory=dict)
    additional: "Rules | None" = None
    items: "Rules | None" = None
    all_of: tuple["Rules", ...] = ()


def compile_rules(node: Node, *, root: bool = False) -> Rules | None:
    """All the rules of a schema, or None where it has none. They compile: `crds` has seen to that."""
    shown = with_type_fields(node) if root else seen(node)
    here = tuple(compile_rule(shown, raw) for raw in node.rules if str(raw.get("rule", "")).strip())
    properties = {name: sub for name, below in node.properties.items() if (sub := compile_rules(below)) is not None}
    additional = compile_rules(node.additional) if isinstance(node.additional, Node) else None
    items = compile_rules(node.items) if node.items is not None else None
    all_of = tuple(sub for below in node.all_of if (sub := compile_rules(below)) is not None)
    if not (here or properties or additional or items or all_of):
        return None
    return Rules(node=node, here=here, properties=properties, additional=additional, items=items, all_of=all_of)


def compile_rule(node: Node, raw: Json) -> Rule:
    """One rule on data of *node*. Raises CompileError; a messageExpression that does not compile raises, too."""
    self_type = declared(node) or types.DYN
    optional_old = bool(raw.get("optionalOldSelf"))
    variables = {"self": self_type, "oldSelf": types.optional_of(self_type) if optional_old else self_type}
    program = compile_expression(raw["rule"], variables)
    if program.type not in (types.BOOL, types.DYN):
        raise WrongResult("cel expression must evaluate to a bool", raw["rule"])
    wording = None
    if raw.get("messageExpression"):
        wording = compile_expression(raw["messageExpression"], variables)
        if wording.type not in (types.STRING, types.DYN):
            raise WrongResult("messageExpression must evaluate to a string", raw["messageExpression"])
    where = normalized(raw.get("fieldPath") or "", node) or ""
    return Rule(
        program=program, text=raw["rule"].strip(), message=(raw.get("message") or "").strip(), wording=wording,
        reason=raw.get("reason") or faults.INVALID, field=where, optional_old=optional_old,
    )  # fmt: skip


def evaluate(
    rules: Rules, value: Any, *, old: Any = ABSENT, path: str = "", budget: int = OBJECT_BUDGET
) -> list[Cause]:
    """The faults of *value*; *old* is what it replaces, ABSENT on creation."""
    run = _Run(budget)
    run.visit(rules, value, old, path, correlated=True, unchanged=False)
    return run.causes


class _Run:
    """One walk over an object."""

    def __init__(self, budget: int) -> None:
        self.causes: list[Cause] = []
        self._left = budget

    def visit(self, rules: Rules, value: Any, old: Any, path: str, *, correlated: bool, unchanged: bool) -> None:
        """Evaluates the rules at one place and below.

        correlated: whether *old* is the former value of this very place. unchanged: whether something above it is
        as it was.
        """
        if value is None or self._left < 0:
            return
        before = old if old is not None else ABSENT
        unchanged = unchanged or (correlated and before is not ABSENT and bool(value == before))
        self._here(rules, value, before, path, unchanged=unchanged)
        for below in rules.all_of:
            self.visit(below, value, old, path, correlated=correlated, unchanged=unchanged)
        if isinstance(value, dict):
            held = before if isinstance(before, dict) else {}
            for name, member in value.items():
                sub, at = rules.properties.get(name), f"{path}.{name}" if path else name
                if sub is None and rules.additional is not None and name not in rules.node.properties:
                    sub, at = rules.additional, f"{path}[{name}]"
                if sub is not None:
                    self.visit(sub, member, held.get(name, ABSENT), at, correlated=correlated, unchanged=unchanged)
        elif isinstance(value, list) and rules.items is not None:
            by_key = _by_key(rules.node, before)
            for i, item in enumerate(value):
                key = rules.node.key_of(item) if by_key else None
                held = by_key.get(key, ABSENT) if key is not None else ABSENT
                self.visit(rules.items, item, held, f"{path}[{i}]", correlated=held is not ABSENT, unchanged=unchanged)

    def _here(self, rules: Rules, value: Any, old: Any, path: str, *, unchanged: bool) -> None:
        if not rules.here:
            return
        node = rules.node
        at, type_ = path or NO_PATH, node.type
        try:
            current = of(value, node)
            former = of(old, node) if old is not ABSENT else None
        except EvaluationError as bad:
            self.causes.append(faults.invalid(at, type_, str(bad)))
            return
        for rule in rules.here:
            if rule.transition and old is ABSENT and not rule.optional_old:
                continue
            if unchanged and not rule.transition:
                # What is as it was is not found fault with again: the rule may be newer than the object.
                continue
            before = former
            if rule.optional_old:
                before = NONE if old is ABSENT else Optional(True, former)
            variables = {"self": current, "oldSelf": before}
            try:
                holds, cost = rule.program.evaluate(variables, min(CALL_BUDGET, self._left))
            except OverBudget:
                self.causes.append(faults.invalid(at, type_, EXHAUSTED))
                self._left = -1
                return
            except EvaluationError as bad:
                self.causes.append(faults.invalid(at, type_, _failed(rule, bad)))
                continue
            self._left -= cost
            if holds is not True:
                shown = faults.OMITTED if type_ in ("object", "array") else value
                self.causes.append(_fault(rule, path, shown, self._message(rule, variables)))

    def _message(self, rule: Rule, variables: Mapping[str, Any]) -> str:
        if rule.wording is not None:
            try:
                said, cost = rule.wording.evaluate(variables, min(CALL_BUDGET, self._left))
            except (EvaluationError, OverBudget):
                said, cost = "", 0
            self._left -= cost
            text = said.strip() if isinstance(said, str) else ""
            if text and "\n" not in text and len(text.encode()) <= MAX_MESSAGE:
                return text
        return rule.message or f"failed rule: {rule.text}"


def _failed(rule: Rule, error: EvaluationError) -> str:
    said = rule.message or rule.text
    if isinstance(error, NoOverload):
        taken = "call arguments did not match a supported operator, function or macro signature"
        return f"'{error}': {taken} for rule: {said}"
    return f"{error} evaluating rule: {said}"


def _fault(rule: Rule, path: str, value: Any, why: str) -> Cause:
    at = path or NO_PATH
    if rule.field:
        at = f"{path}{rule.field}" if path or rule.field.startswith("[") else rule.field.removeprefix(".")
    match rule.reason:
        case faults.FORBIDDEN:
            return faults.forbidden(at, why)
        case faults.REQUIRED:
            return faults.required(at, why)
        case faults.DUPLICATE:
            return faults.duplicate(at, value)
    return faults.invalid(at, value, why)


def _by_key(node: Node, old: Any) -> dict[tuple[Any, ...], Any]:
    if node.list_type != "map" or not isinstance(old, list):
        return {}
    return {key: item for item in old if (key := node.key_of(item)) is not None}
