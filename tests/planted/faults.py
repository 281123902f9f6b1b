# SPDX-License-Identifier: Apache-2.0
"""The list of planted faults (faults.txt, whose first lines say how to write one): reads it, and applies a fault to a file's text.
Pure; tests/mutants and tests/unit/package/planted_faults.py use it."""
import collections
import fnmatch
import re
from dataclasses import dataclass

DEFAULT_ORDERS = ("forward",)


class BadFault(Exception):
    """A line that cannot be read, or a fault that does not apply: said in one line that names it."""


@dataclass(frozen=True)
class Killer:
    """A gtest filter, or a test of ctest's; and the orders in which the emulated GPU's threads run."""
    gtest: str = ""
    ctest: str = ""
    orders: tuple = DEFAULT_ORDERS

    def __str__(self):
        return self.ctest or self.gtest + (" in order " + ",".join(self.orders) if self.orders != DEFAULT_ORDERS else "")


@dataclass(frozen=True)
class Fault:
    line: int  # in the list
    is_quick: bool
    file: str  # from the root of the checkout
    unit: str  # what is compiled: the file itself, or one that includes it
    kind: str
    killer: Killer
    edits: tuple  # of (anchor or "", text, replacement)
    reason: str  # why it is accepted that no test kills it; "": it is to be killed

    def __str__(self):
        return f"faults.txt:{self.line}: {self.kind}, {self.file}: " + " ;; ".join(
            (f"{anchor} ~> " if anchor else "") + f"{text} => {new}".rstrip() for anchor, text, new in self.edits)


def gtest_name(name):
    """A suite that runs on each device is meant on the GPU."""
    if name.startswith("="):
        return name.removeprefix("=")
    return f"Devices/{name}" + ("" if "/" in name else "/cuda*")


def killer_of(text):
    filters, at, orders = text.partition(" @")
    named = tuple(order.strip() for order in orders.split(",")) if at else DEFAULT_ORDERS
    if filters.startswith("ctest:"):
        return Killer(ctest=filters.removeprefix("ctest:"))
    if not filters or not all(named):
        raise ValueError("names no test")
    return Killer(gtest=":".join(gtest_name(one) for one in filters.split(":")), orders=named)


def fault_of(line, number, folders):
    """A line of the list; `folders`: {short name: folder} that [..] lines have set."""
    try:
        place, kind, killer, rest = (part.strip() for part in line.split(" | ", 3))
    except ValueError:
        raise BadFault(f"faults.txt:{number}: is not: file | class | killer | text => replacement") from None
    is_quick = place.startswith("* ")
    file, _, unit = place.removeprefix("* ").partition("@")
    rest, _, reason = rest.partition(" !! ")
    edits = []
    for edit in rest.split(" ;; "):
        before, arrow, new = edit.partition(" =>")
        anchor, tilde, text = before.rpartition(" ~> ")
        if not arrow or not text.strip():
            raise BadFault(f"faults.txt:{number}: has no text => replacement")
        edits.append((anchor.strip() if tilde else "", text.strip(), new.strip()))
    try:
        return Fault(number, is_quick, folders + file, folders + (unit or file), kind, killer_of(killer), tuple(edits),
                     reason.strip())
    except ValueError as error:
        raise BadFault(f"faults.txt:{number}: {error}") from None


def read(text):
    """All faults of the list, and {file: killers}: the suites that run where the expected test has not failed."""
    faults, suites, folder = [], collections.defaultdict(list), ""
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("[") and line.endswith("]"):
            folder = line[1:-1].rstrip("/") + "/"
        elif line.startswith("& "):
            file, _, killer = line.removeprefix("& ").partition(" | ")
            suites[folder + file.strip()].append(killer_of(killer.strip()))
        else:
            faults.append(fault_of(line, number, folder))
    return faults, suites


def pattern(text):
    """Finds the text however its lines are broken."""
    return re.compile(r"\s+".join(re.escape(word) for word in text.split()))


def span_of(fault, source, anchor, text):
    """Where the text is in the source: its only place, or the first after the anchor, of which there is one."""
    begin = 0
    if anchor:
        places = [match.end() for match in pattern(anchor).finditer(source)]
        if len(places) != 1:
            raise BadFault(f"{fault}: its anchor occurs {len(places)} times")
        begin = places[0]
    places = [match.span() for match in pattern(text).finditer(source, begin)]
    if not places or (len(places) > 1 and not anchor):
        raise BadFault(f"{fault}: its text occurs {len(places)} times" + (" after the anchor" if anchor else ""))
    return places[0]


def applied(fault, source):
    """The source with the fault."""
    spans = sorted((*span_of(fault, source, anchor, text), new) for anchor, text, new in fault.edits)
    for (_, end, _), (begin, _, _) in zip(spans, spans[1:]):
        if begin < end:
            raise BadFault(f"{fault}: its edits overlap")
    for begin, end, new in reversed(spans):
        source = source[:begin] + new + source[end:]
    return source


def matching(gtest_filter, names):
    """The names that a filter of gtest's chooses; one without exclusions."""
    return [name for name in names if any(fnmatch.fnmatchcase(name, one) for one in gtest_filter.split(":"))]


def chosen(faults, only=(), quick=False):
    """Those of the quick subset, or whose class or file has one of the texts, or that are on one of these lines."""
    def is_meant(fault):
        return not only or any(text in fault.kind or text in fault.file or text == str(fault.line) for text in only)

    return [fault for fault in faults if (fault.is_quick or not quick) and is_meant(fault)]
