"""The facts file (`--facts`): evidence that a dump cannot carry, in TOML."""

from __future__ import annotations

import re
from typing import Any, BinaryIO, get_args, get_origin

import msgspec
import tomli

from enginectl.errors import UnreadableInput, UsageError
from enginectl.model.observed import StatedFacts

MAX_BYTES = 1 << 22
_UNKNOWN = re.compile(r"unknown field `([^`]+)`")
_AT = re.compile(r"at `\$\.?([^`]*)`$")


def parse(text: str, name: str = "the facts file") -> StatedFacts:
    """Facts of a TOML text.

    Errors: UsageError for text that is no TOML, for a key that does not exist and for a value of the wrong type,
    each naming the key.
    """
    try:
        return msgspec.convert(tomli.loads(text), StatedFacts)
    except (tomli.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{name} is not valid TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}: {_told(str(error))}", fix=_keys_at(str(error))) from None


def _told(message: str) -> str:
    """The message of the decoder with the full path of the key in front."""
    unknown, at = _UNKNOWN.search(message), _AT.search(message)
    where = at.group(1) if at else ""
    if unknown:
        return f"there is no key `{where + '.' if where else ''}{unknown.group(1)}`"
    reason = message.split(" - at ")[0]
    return f"key `{where}`: {reason}" if where else reason


def _keys_at(message: str) -> str:
    """The keys that exist where the message found another one."""
    kind: Any = StatedFacts
    at = _AT.search(message)
    path = [re.sub(r"\[.*", "", part) for part in (at.group(1) if at else "").split(".") if part]
    known: list[str] = []
    for part in path:
        inner = next((_struct_of(f.type) for f in msgspec.structs.fields(kind) if f.encode_name == part), None)
        if not (isinstance(inner, type) and issubclass(inner, msgspec.Struct)):
            break
        kind, known = inner, [*known, part]
    names = ", ".join(f.encode_name for f in msgspec.structs.fields(kind))
    return f"Keys {'of ' + '.'.join(known) if known else 'at the top'}: {names}."


def _struct_of(kind: Any) -> Any:
    """The struct in `tuple[X, ...]`, or the struct itself."""
    return get_args(kind)[0] if get_origin(kind) is tuple else kind


def read_facts(name: str, stream: BinaryIO) -> StatedFacts:
    """Facts of an open file. Errors: as `parse`; UnreadableInput when reading fails."""
    try:
        raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise UnreadableInput(f"{name} cannot be read: {error}") from None
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{name} is larger than a facts file can be ({MAX_BYTES >> 20} MiB)")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not UTF-8 text") from None
    return parse(text, name)
