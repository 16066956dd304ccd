"""The answer in words."""

from __future__ import annotations

from helpers import NETWORKS, scores

from pscnn.data import own
from pscnn.experiments import _discover
from pscnn.report import _discover as words_about


def finding(method: str, rates: dict[str, float], *, kept: float, regression: bool = False) -> words_about.Discovery:
    holds = own.About(
        (28, 28), 1, ("a", "b"), "numbers" if regression else "classes", 0.0, 1.0, counts=(10, 300, 10), source="sky"
    )
    found = scores(**rates)
    choice, gaps = _discover.choose(found)
    assert choice.method == method
    first = words_about.LayerFinding("1 (2)", 8, ("O(2)",), {"O(2)": (0.9, 0.8, 1.0), "SO(2)": (0.95, 0.9, 1.0)})
    second = words_about.LayerFinding(
        "2 (4)", 12, ("O(2)",) if kept > 0.8 else ("SO(2)",), {"O(2)": (kept, kept, kept), "SO(2)": (0.9, 0.9, 0.9)}
    )
    means = {name: [float(s.mean()) for s in found[name]] for name in found}
    return words_about.Discovery(
        holds, "O(2)", {}, means, means, dict.fromkeys(NETWORKS, 10), 0.5, choice, gaps, [first, second]
    )


def test_the_answer_in_words() -> None:
    assert words_about._headline(finding("p-scnn", {"s": 0.6, "p": 0.95, "c": 0.7}, kept=0.3)) == (
        "Use the partially equivariant (P-SCNN) network. For patterns of up to 8 of 28 pixels it keeps all rotations "
        "and mirrors; in its last layer, which sees 12 of 28 pixels, it keeps all rotations."
    )
    partly = " ".join(words_about.discovery_words(finding("p-scnn", {"s": 0.6, "p": 0.95, "c": 0.7}, kept=0.3)))
    assert "Use the partially equivariant (P-SCNN) network." in partly
    assert "Patterns of up to 8 of 28 pixels keep O(2)." in partly
    assert "In layer 2 (4), which sees 12 of 28 pixels, O(2) is given up (kept to 30%" in partly
    assert "what is kept there: SO(2) 90%." in partly
    whole = " ".join(words_about.discovery_words(finding("scnn", {"s": 0.995, "p": 0.99, "c": 0.7}, kept=0.9)))
    assert "The task keeps the symmetry O(2)" in whole
    unsure = finding("scnn", {"s": 0.8, "p": 0.82, "c": 0.7}, kept=0.9)
    assert "Nothing here speaks against the symmetry O(2)" in " ".join(words_about.discovery_words(unsure))
    nothing = words_about.discovery_words(finding("scnn", {"s": 0.5, "p": 0.5, "c": 0.5}, kept=0.9))
    assert len(nothing) == 1
    assert "nothing can be said" in nothing[0]
