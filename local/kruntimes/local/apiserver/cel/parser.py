"""Tokens as a syntax tree, by recursive descent. Pure. Grammar: the CEL language definition, with its macros."""

from collections.abc import Callable

from kruntimes.local.apiserver.cel import lexer
from kruntimes.local.apiserver.cel.ast import (
    Call,
    Expr,
    Fold,
    Ident,
    Literal,
    MakeList,
    MakeMap,
    OptionalMap,
    Select,
)
from kruntimes.local.apiserver.cel.errors import CompileError
from kruntimes.local.apiserver.cel.lexer import RESERVED, Token

MAX_DEPTH = 50
"""Nesting of an expression; each level takes some eight frames of the interpreter's stack."""
_RELATIONS = ("<", "<=", ">", ">=", "==", "!=", "in")
_ONE_NAME = ("all", "exists", "exists_one", "filter", "map", "sortBy")
_TWO_NAMES = ("all", "exists", "exists_one", "existsOne", "transformList", "transformMap", "transformMapEntry")


def parse(source: str) -> Expr:
    """The tree of *source*. Raises CompileError."""
    return _Parser(source).whole()


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = lexer.tokens(source)
        self._i = 0
        self._depth = 0

    # ------------------------------------------------------------ tokens

    @property
    def _now(self) -> Token:
        return self._tokens[self._i]

    def _next(self) -> Token:
        token = self._now
        self._i += token.kind != "end"
        return token

    def _is(self, *texts: str) -> bool:
        return self._now.text in texts and self._now.kind in ("op", "name")

    def _take(self, *texts: str) -> Token | None:
        return self._next() if self._is(*texts) else None

    def _expect(self, text: str) -> Token:
        found = self._take(text)
        if found is None:
            raise self._unexpected(f"missing '{text}' at '{self._now.text}'")
        return found

    def _unexpected(self, why: str) -> CompileError:
        return CompileError(f"Syntax error: {why}", self._source, self._now.position)

    def _bad(self, why: str, position: int) -> CompileError:
        return CompileError(why, self._source, position)

    # ------------------------------------------------------------ expressions

    def whole(self) -> Expr:
        """The whole source is one expression."""
        found = self._expr()
        if self._now.kind != "end":
            raise self._unexpected(f"extraneous input '{self._now.text}' expecting <EOF>")
        return found

    def _expr(self) -> Expr:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._bad(f"expression recursion limit exceeded: {MAX_DEPTH}", self._now.position)
        left = self._or()
        mark = self._take("?")
        if mark is not None:
            then = self._or()
            self._expect(":")
            left = Call(position=mark.position, function="_?_:_", args=(left, then, self._expr()))
        self._depth -= 1
        return left

    def _or(self) -> Expr:
        return self._logical("||", self._and)

    def _and(self) -> Expr:
        return self._logical("&&", self._relation)

    def _logical(self, sign: str, operand: Callable[[], Expr]) -> Expr:
        """Any number of operands, side by side: a long chain is not a deep tree."""
        args, marks = [operand()], []
        while mark := self._take(sign):
            marks.append(mark)
            args.append(operand())
        return Call(position=marks[0].position, function=f"_{sign}_", args=tuple(args)) if marks else args[0]

    def _relation(self) -> Expr:
        left = self._sum()
        while mark := self._take(*_RELATIONS):
            name = "@in" if mark.text == "in" else f"_{mark.text}_"
            left = Call(position=mark.position, function=name, args=(left, self._sum()))
        return left

    def _sum(self) -> Expr:
        left = self._product()
        while mark := self._take("+", "-"):
            left = Call(position=mark.position, function=f"_{mark.text}_", args=(left, self._product()))
        return left

    def _product(self) -> Expr:
        left = self._unary()
        while mark := self._take("*", "/", "%"):
            left = Call(position=mark.position, function=f"_{mark.text}_", args=(left, self._unary()))
        return left

    def _unary(self) -> Expr:
        mark = self._take("!", "-")
        if mark is None:
            return self._member()
        if mark.text == "-" and self._now.kind in ("int", "double"):
            return self._member(negative=mark)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._bad(f"expression recursion limit exceeded: {MAX_DEPTH}", mark.position)
        made = Call(position=mark.position, function="!_" if mark.text == "!" else "-_", args=(self._unary(),))
        self._depth -= 1
        return made

    def _member(self, negative: Token | None = None) -> Expr:
        left = self._primary(negative)
        while mark := self._take(".", ".?", "[", "[?"):
            if mark.text in ("[", "[?"):
                name = "_[_]" if mark.text == "[" else "_[?_]"
                left = Call(position=mark.position, function=name, args=(left, self._expr()))
                self._expect("]")
                continue
            name = self._field()
            if mark.text == ".?":
                left = Select(position=mark.position, operand=left, field=name, optional=True)
            elif paren := self._take("("):
                left = self._method(left, name, paren)
            else:
                left = Select(position=mark.position, operand=left, field=name)
        return left

    def _field(self) -> str:
        token = self._next()
        if token.kind == "quoted":
            return token.text[1:-1]
        if token.kind != "name" or token.text in ("in", "true", "false", "null"):
            self._i -= token.kind != "end"
            raise self._unexpected(f"no viable alternative at input '.{token.text}'")
        return token.text

    def _arguments(self, closing: str) -> tuple[Expr, ...]:
        found: list[Expr] = []
        while not self._is(closing):
            found.append(self._expr())
            if not self._take(","):
                break
        self._expect(closing)
        return tuple(found)

    # ------------------------------------------------------------ primaries

    def _primary(self, negative: Token | None = None) -> Expr:
        token = self._next()
        at = token.position
        if token.kind in ("int", "uint", "double", "string", "bytes"):
            return self._literal(token, negative)
        if token.text == "(" and token.kind == "op":
            inner = self._expr()
            self._expect(")")
            return inner
        if token.text in ("[", "[?") and token.kind == "op":
            if token.text == "[?":
                # `[?` opened a list whose first item is optional.
                self._tokens[self._i - 1] = Token("op", "[", at)
                self._tokens.insert(self._i, Token("op", "?", at + 1))
            return self._list(at)
        if token.text == "{" and token.kind == "op":
            return self._map(at)
        dotted = token.text == "." and token.kind == "op"
        if dotted:
            token = self._next()
        if token.kind == "name":
            return self._named(token)
        self._i -= token.kind != "end"
        raise self._unexpected(
            f"mismatched input '{self._now.text}' expecting {{'[', '{{', '(', '.', '-', '!', 'true', 'false', 'null', "
            "NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
        )

    def _literal(self, token: Token, negative: Token | None) -> Expr:
        value = token.value
        position = token.position if negative is None else negative.position
        if negative is not None:
            value = -value
        elif token.kind == "int" and value >= lexer.INT_LIMIT:
            raise self._bad("invalid int literal", position)
        return Literal(position=position, value=value, type=token.kind)

    def _named(self, token: Token) -> Expr:
        at, name = token.position, token.text
        if name in ("true", "false"):
            return Literal(position=at, value=name == "true", type="bool")
        if name == "null":
            return Literal(position=at, value=None, type="null_type")
        if name == "in":
            self._i -= 1
            raise self._unexpected("mismatched input 'in'")
        if name in RESERVED:
            raise self._bad(f"reserved identifier: {name}", at)
        paren = self._take("(")
        if paren is None:
            return Ident(position=at, name=name)
        args = self._arguments(")")
        if name == "has":
            if len(args) == 1 and isinstance(args[0], Select) and not args[0].optional:
                selected = args[0]
                return Select(position=paren.position, operand=selected.operand, field=selected.field, test=True)
            at = args[0].position if args else paren.position
            raise self._bad("invalid argument to has() macro", at)
        return Call(position=paren.position, function=name, args=args)

    def _list(self, at: int) -> Expr:
        items: list[Expr] = []
        optional: set[int] = set()
        while not self._is("]"):
            if self._take("?"):
                optional.add(len(items))
            items.append(self._expr())
            if not self._take(","):
                break
        self._expect("]")
        return MakeList(position=at, items=tuple(items), optional=frozenset(optional))

    def _map(self, at: int) -> Expr:
        entries: list[tuple[Expr, Expr]] = []
        optional: set[int] = set()
        while not self._is("}"):
            if self._take("?"):
                optional.add(len(entries))
            key = self._expr()
            self._expect(":")
            entries.append((key, self._expr()))
            if not self._take(","):
                break
        self._expect("}")
        return MakeMap(position=at, entries=tuple(entries), optional=frozenset(optional))

    # ------------------------------------------------------------ macros

    def _method(self, target: Expr, name: str, paren: Token) -> Expr:
        args, at = self._arguments(")"), paren.position
        if name in _ONE_NAME and len(args) == 2:
            return Fold(position=at, kind=_kind(name), over=target, names=(self._name(args[0]),), body=args[1])
        if name == "map" and len(args) == 3:
            names = (self._name(args[0]),)
            return Fold(position=at, kind="map", over=target, names=names, condition=args[1], body=args[2])
        if name in _TWO_NAMES and len(args) in (3, 4) and (len(args) == 3 or name.startswith("transform")):
            pair = self._name(args[0]), self._name(args[1])
            if pair[0] == pair[1]:
                raise self._bad(f"duplicate variable name: {pair[0]}", args[1].position)
            condition = args[2] if len(args) == 4 else None
            return Fold(position=at, kind=_kind(name), over=target, names=pair, condition=condition, body=args[-1])
        if name in ("optMap", "optFlatMap") and len(args) == 2:
            flat = name == "optFlatMap"
            return OptionalMap(position=at, target=target, name=self._name(args[0]), body=args[1], flat=flat)
        return Call(position=at, function=name, args=args, target=target)

    def _name(self, arg: Expr) -> str:
        if not isinstance(arg, Ident):
            raise self._bad("argument must be a simple name", arg.position)
        return arg.name


def _kind(name: str) -> str:
    return "exists_one" if name == "existsOne" else name
