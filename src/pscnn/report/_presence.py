"""Whether data have symmetries, in words; and whether to augment, which depends on the answers as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pscnn.experiments import Presence, Subgroup
from pscnn.report._phrases import group_words, listed, mirror_words

VERDICTS = ("kept", "broken", "cannot tell")
COMES = {
    True: "The examples seem to come as often transformed by {them} as not",
    False: "The examples do not come transformed by {them}, so poses are not alike",
    None: "Whether the examples come transformed by {them} cannot be told",
}
ADVICE: Mapping[tuple[bool | None, str], str] = {
    (True, "kept"): "the answer does not depend on it: augmenting by it is right, and pays where examples are few; a "
    "network that keeps it need not learn it",
    (True, "broken"): "the answer depends on it: do not augment by it",
    (True, "cannot tell"): "whether the answer depends on it cannot be told: augment by it only if you know that it "
    "does not",
    (False, "kept"): "no answer here depends on it: it can be enforced, and augmenting by it does no harm; whether "
    "answers would stay if new examples came so, no example tells: you have to know",
    (False, "broken"): "the answer depends on it: do not augment by it; if new examples came so, other answers would "
    "be right, and the network would have to be trained anew",
    (False, "cannot tell"): "whether the answer depends on it cannot be told: augment by it only if new examples may "
    "come so and you know that the answer stays",
    (None, "kept"): "the answer does not depend on it: augmenting by it does no harm",
    (None, "broken"): "the answer depends on it: do not augment by it",
    (None, "cannot tell"): "nor can it be told whether the answer depends on it",
}
"""What to do, by whether examples come so and what networks showed about the answers."""


def subgroup_words(one: Subgroup) -> str:
    """A subgroup in words, its symbol behind it.

    Example:
        >>> from pscnn.groups import D
        >>> subgroup_words(Subgroup(D(1), 90)), subgroup_words(Subgroup(D(2), 30))
        ('the left–right mirror (D1)', 'half turns and the mirror lines at 30° and 120° (D2)')
    """
    mirrored = mirror_words(one.elements()) if one.group.dimension == 3 and one.group.order == 2 else None
    if mirrored is not None:
        return f"{mirrored} ({one})"
    if one.angle is None:
        return group_words(one.name)
    count = len(one.elements()) // 2
    symbol = f"(D{count})"
    if count == 1:
        known = {90.0: "the left–right mirror", 0.0: "the top–bottom mirror"}
        return f"{known.get(one.angle, f'the mirror line at {one.angle:g}°')} {symbol}"
    turns = group_words(f"C({count})").rpartition(" (")[0]
    lines = [f"{one.angle + 180 * k / count:g}°" for k in range(count)]
    return f"{turns} and the mirror lines at {listed(lines)} {symbol}"


def presence_words(found: Sequence[Presence], verdicts: Sequence[str]) -> list[str]:
    """Sentences that keep apart how examples come and what their answers depend on, and say whether to augment.

    Args:
        found: What was tested before training.
        verdicts: For each of them, what networks showed: "kept" if the answer does not depend on it, "broken" if it
            does, or "cannot tell".
    """
    for verdict in verdicts:
        if verdict not in VERDICTS:
            raise ValueError(f"a verdict must be one of {', '.join(VERDICTS)}, got {verdict!r}")
    if len(found) != len(verdicts):
        raise ValueError(f"expected a verdict for each of {len(found)} tests, got {len(verdicts)}")
    pairs = list(zip(found, verdicts, strict=True))
    out = []
    for key, advice in ADVICE.items():
        same = [one for one, verdict in pairs if (one.present, verdict) == key]
        if same:
            names = listed([_name(one) for one in same])
            out.append(f"{COMES[key[0]].format(them=names)}{_evidence(same)}; {advice}.")
    telling = [one for one in found if one.present is not False and one.within_classes is False]
    if telling:
        out.append(
            f"Within single classes the examples do not come transformed by {listed([_name(one) for one in telling])}: "
            "the pose tells something about the class."
        )
    return out


def _name(one: Presence) -> str:
    if isinstance(one.group, Subgroup):
        return subgroup_words(one.group)
    name = one.group.name
    if one.angle is None or name not in ("D(1)", "D1"):
        return group_words(name)
    return group_words(f"mirror line at {round(one.angle) % 180}°")


def _evidence(same: Sequence[Presence]) -> str:
    """How well a classifier finds copies; nothing where chance is all that is left to it."""
    if same[0].present is not False:
        return ""
    shares = [f"{100 * one.statistic:.0f} %" for one in same]
    low, high = min(shares, key=_number), max(shares, key=_number)
    span = low if low == high else f"{low} to {high}"
    return f" (of an example and its copy, a small classifier finds the copy in {span}; half would be chance)"


def _number(percent: str) -> int:
    return int(percent.split()[0])
