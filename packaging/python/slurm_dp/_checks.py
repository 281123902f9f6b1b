# SPDX-License-Identifier: Apache-2.0
"""What a call was given, as libdp takes it; or an Error that says what was wrong with it. The same inside and outside a step."""
import math

from ._api import Group
from ._library import DEFAULT_TIMEOUT, MAX_VALUE_BYTES, PHASES, Error

_MOST_SECONDS = 1e9


def milliseconds(timeout):
    """Rounded up: only 0 does not wait."""
    if timeout is None:
        return DEFAULT_TIMEOUT
    if not isinstance(timeout, (int, float)) or isinstance(timeout, bool) or not timeout >= 0:
        raise Error("invalid", f"a timeout is a number of seconds from 0 on, not {timeout!r}")
    return math.ceil(min(timeout, _MOST_SECONDS) * 1000)


def text(value, what):
    try:
        if "\0" not in value:
            return value.encode()
    except (AttributeError, TypeError, UnicodeError):
        pass
    raise Error("invalid", f"{what} is a string without NUL, not {value!r}")


def value(given, what="a value"):
    if isinstance(given, str):
        given = given.encode(errors="surrogateescape")
    try:
        found = bytes(memoryview(given))
    except TypeError:
        raise Error("invalid", f"{what} is bytes or a string, not {type(given).__name__}") from None
    if len(found) > MAX_VALUE_BYTES:
        raise Error("too large", f"{what} has {len(found)} bytes; the limit is {MAX_VALUE_BYTES}")
    return found


def unique_id(made, size):
    try:
        found = bytes(memoryview(made))
    except TypeError:
        raise Error("invalid", f"a unique id is bytes, not {type(made).__name__}") from None
    if len(found) != size:
        raise Error("invalid", f"a unique id has {size} bytes, not {len(found)}")
    return found


def number(given, bits, what, signed=True):
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if not isinstance(given, int) or not low <= given <= high:
        raise Error("invalid", f"{what} is a whole number from {low} to {high}, not {given!r}")
    return given


def group(given):
    if given is not None and not isinstance(given, Group):
        raise Error("invalid", f"a group is made by World.group, not of {given!r}")
    return given


def members(given, size):
    """Of a group in a world of that size."""
    try:
        found = tuple(sorted(set(given)))
        if found and all(isinstance(rank, int) and 0 <= rank < size for rank in found):
            return found
    except TypeError:
        pass
    raise Error("invalid", f"a group's members are ranks from 0 to {size - 1}, at least one, not {given!r}")


def facts(given):
    try:
        return {text(name, "a fact's name"): None if one is None else text(str(one), "a fact") for name, one in given.items()}
    except AttributeError:
        raise Error("invalid", f"facts are a dictionary of names and values, not {given!r}") from None


def scalar(name, given):
    """A tensor with one element is a number, too."""
    try:
        return text(name, "a scalar's name"), float(given)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise Error("invalid", f"the scalar {name!r} is a number, not {given!r:.200}") from None


def phase(name):
    if name not in PHASES:
        raise Error("invalid", f"there is no phase {name!r}; there are {', '.join(PHASES)}")
    return PHASES.index(name)


def callback(given):
    if not callable(given):
        raise Error("invalid", f"on_event needs a function to call, not {given!r}")
    return given
