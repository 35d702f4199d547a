"""Changes inputs in ways that random flips of bytes hardly ever reach.

Most inputs are JSON with texts of other grammars inside. A change picks a node of the document and replaces it by an
extreme or by a copy of another node, removes it, repeats it, renames it, or changes its text. A text gets words of the
grammar, or a piece of it is repeated, which finds code that takes too long.
"""

from __future__ import annotations

import json
from copy import deepcopy
from random import Random

EXTREMES = (
    None,
    True,
    0,
    -1,
    1,
    2**31 - 1,
    2**31,
    2**63,
    -(2**63),
    10**30,
    10**400,
    0.1,
    -0.0,
    1e-300,
    1.7e308,
    "",
    "0",
    "-1",
    "2147483648",
    "9" * 30,
    "9" * 400,
    "9" * 5000,
    "1e308",
    "NaN",
    "+Inf",
    "\x00\x1b[31m",
    "\u0663",
    [],
    {},
    [[]],
    {"": ""},
)
"""Values that are invalid, or just valid, for a number, a text or a part of a document."""

_MOST_NODES = 2_000
_RANDOM_BYTES = 0.3


def mutated(data, *, most, seed, words, flip):
    """Return a changed input of at most ``most`` bytes; ``flip(data, size)`` changes bytes at random."""
    chance = Random(seed)
    if chance.random() < _RANDOM_BYTES:
        return flip(data, most)
    try:
        document = json.loads(data)
        for _ in range(chance.randint(1, 3)):
            document = _document(document, chance, words, most, flip)
        changed = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        text = data.decode("utf-8", errors="surrogateescape")
        changed = _text(text, chance, words, most, flip).encode("utf-8", errors="surrogateescape")
    return changed if 0 < len(changed) <= most else flip(data, most)


def _document(document, chance, words, most, flip):
    """Change one node."""
    root = [document]
    places = _places(root)
    holder, key = chance.choice(places)
    value = holder[key]
    match chance.randrange(7):
        case 0:
            holder[key] = deepcopy(chance.choice(EXTREMES))
        case 1:
            other, name = chance.choice(places)
            holder[key] = deepcopy(other[name])
        case 2 if holder is not root:
            del holder[key]
        case 3 if isinstance(holder, list) and holder is not root:
            holder[key:key] = [value] * chance.choice([1, 1, 2, 100])
        case 4 if isinstance(holder, dict):
            holder[chance.choice(words)] = holder.pop(key)
        case 5 if isinstance(value, dict):
            value[chance.choice(words)] = deepcopy(chance.choice(EXTREMES))
        case _:
            holder[key] = _scalar(value, chance, words, most, flip)
    return root[0]


def _places(root):
    """Return the places of the nodes: the parent of each, and its key or index there."""
    places = [(root, 0)]
    for holder, key in places:
        if len(places) > _MOST_NODES:
            break
        value = holder[key]
        if isinstance(value, dict):
            places += [(value, name) for name in value]
        elif isinstance(value, list):
            places += [(value, index) for index in range(len(value))]
    return places


def _scalar(value, chance, words, most, flip):
    if isinstance(value, str):
        return _text(value, chance, words, most, flip)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return chance.choice(words)
    return chance.choice([-value, value + 1, value - 1, value * 10, value // 3, str(value)])


def _text(text, chance, words, most, flip):
    at = chance.randint(0, len(text))
    match chance.randrange(5):
        case 0:
            return text[:at] + chance.choice(words) + text[at:]
        case 1:
            end = min(len(text), at + chance.randint(1, 40))
            piece = text[at:end] or chance.choice(words)
            times = chance.choices([2, 10, 1000, max(1, (most - len(text)) // len(piece) - 8)], [8, 8, 3, 1])[0]
            return text[:at] + piece * times + text[end:]
        case 2:
            return text[:at] + text[at + chance.randint(1, 8) :]
        case 3:
            extreme = chance.choice([extreme for extreme in EXTREMES if isinstance(extreme, str)])
            return text[:at] + extreme + text[at:]
        case _:
            changed = flip(text.encode("utf-8", errors="surrogateescape") or b" ", max(16, 2 * len(text)))
            return changed.decode("utf-8", errors="surrogateescape")
