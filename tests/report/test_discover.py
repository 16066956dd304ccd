"""The answer in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pscnn import report
from pscnn.data import own
from pscnn.experiments import Discovery, Network, Statement, Subgroup
from pscnn.groups import O2, O3, SO2, C, D
from pscnn.training import RunError

HALF, MIRROR, ALL, WHOLE = Subgroup(C(2)), Subgroup(D(1), 90.0), Subgroup(SO2()), Subgroup(O2())


def row(kind: str, right: int, count: int = 100) -> Network:
    return Network(kind, f"own/{kind}", (1.0,) * right + (0.0,) * (count - right), right / count, 1000, 0.01, 7)


def found(kept: Subgroup | None, *statements: Statement, kind: str = "classes") -> Discovery:
    about = own.About(
        (28, 28), 1, ("a", "b"), kind, 0.0, 1.0, (0.0, 0.0), (1.0, 1.0), counts=(300, 100, 100), source="sky"
    )
    networks = [row("kept", 98), row("p-scnn", 97), row("cnn", 60), row("augment", 95)]
    return Discovery(
        Path("out"), "data.npz", about, "O(2)", kept, list(statements), True, 400, 0.99, 0.5, 4, networks=networks
    )


def statement(one: Subgroup, verdict: str, cost: float) -> Statement:
    return Statement(one, verdict, cost, cost - 0.01, cost + 0.01, 0.99 - cost)


def test_subgroups_in_words() -> None:
    assert report.subgroup_words(WHOLE) == "all rotations and mirrors (O(2))"
    assert report.subgroup_words(Subgroup(D(1), 30.0)) == "the mirror line at 30° (D1)"
    assert report.subgroup_words(Subgroup(D(4), 22.5)) == (
        "quarter turns and the mirror lines at 22.5°, 67.5°, 112.5° and 157.5° (D4)"
    )


def test_subgroups_in_space_in_words() -> None:
    z = (0, 0, 1)
    said = {str(one): report.subgroup_words(one) for one in (
        Subgroup(D(1).about((1, 0, 0))), Subgroup(D(1).about(z), 90.0), Subgroup(D(1).about(z), 0.0),
        Subgroup(O2().about(z, "turn")), Subgroup(C(2).about(z)), Subgroup(O3()),
    )}  # fmt: skip
    assert said == {
        "D(1)@x": "the mirror that exchanges top and bottom, z and −z (D(1)@x)",
        "D(1)@z at 90°": "the mirror that exchanges left and right, x and −x (D(1)@z at 90°)",
        "D(1)@z at 0°": "the mirror that exchanges front and back, y and −y (D(1)@z at 0°)",
        "O(2)@z, turn": "all rotations about z and half turns about axes across z (O(2)@z, turn)",
        "C(2)@z": "half turns about z (C(2)@z)",
        "O(3)": "all rotations and reflections in space (O(3))",
    }


def test_several_largest_symmetries_are_all_named() -> None:
    some = found(ALL, statement(ALL, "kept", 0.0), statement(MIRROR, "kept", 0.0), statement(WHOLE, "broken", 0.3))
    assert report.discovery_headline(some) == (
        "The largest symmetry that was tried and can be enforced without loss: all rotations; by itself also the "
        "left–right mirror."
    )


def test_what_is_kept_and_what_it_costs() -> None:
    words = report.discovery_words(
        found(HALF, statement(HALF, "kept", -0.001), statement(MIRROR, "broken", 0.31), statement(ALL, "broken", 0.4))
    )
    assert words[0] == "The largest symmetry that can be enforced without loss: half turns."
    assert words[1] == "Can be enforced, and what it costs: half turns (C2) −0.1 points [−1.1, 0.9]."
    assert words[2] == (
        "Cannot be enforced without loss: the left–right mirror (D1) 31.0 points [30.0, 32.0]; all rotations (SO(2)) "
        "40.0 points [39.0, 41.0]."
    )
    assert "400 held-out examples, 4 networks" in words[3]


def test_the_whole_group_nothing_and_what_cannot_be_told() -> None:
    assert report.discovery_headline(found(WHOLE)) == (
        "All rotations and mirrors can be enforced: that costs nothing that matters."
    )
    assert report.discovery_headline(found(Subgroup(C(1)))) == (
        "No symmetry that was tried can be enforced without loss."
    )
    unclear = found(None, statement(HALF, "kept", 0.0), statement(Subgroup(D(2), 0.0), "cannot tell", 0.01))
    assert report.discovery_headline(unclear) == (
        "It is safe to enforce half turns; whether more can be enforced cannot be told. The best guess is half turns "
        "and the mirror lines at 0° and 90°."
    )
    assert any("Cannot be told: half turns and the mirror lines" in text for text in report.discovery_words(unclear))


def test_too_few_examples_and_too_little_learnt() -> None:
    few = replace(found(None), learnt=False, examples=40)
    assert report.discovery_headline(few) == "There are too few examples to say anything about symmetries."
    assert "below 50 no verdict is given" in report.discovery_words(few)[1]
    nothing = replace(few, examples=400)
    assert report.discovery_headline(nothing) == "These networks learnt too little to say anything about symmetries."
    assert "compare symmetries is better than a constant answer for sure" in report.discovery_words(nothing)[1]


def test_the_network_with_the_best_mean_is_recommended_and_called_a_guess_if_it_is_one() -> None:
    some = found(HALF, statement(HALF, "kept", 0.0))
    (use,) = (text for text in report.discovery_words(some) if text.startswith("Use"))
    assert use.startswith("Use, as the better guess, the network with the best mean: equivariant network (C(2))")
    assert "against the plain CNN +38.0" in use
    sure = replace(some, networks=[row("kept", 98), row("cnn", 30)])
    assert any(text.startswith("Use the network that is best for sure") for text in report.discovery_words(sure))
    hasty = replace(sure, networks=[row("kept", 98), replace(row("cnn", 30), epochs=1)])
    words = report.discovery_words(hasty)
    assert any(text.startswith("Use, as the better guess") for text in words)
    assert any("some networks had few epochs (the plain CNN 1). Give more --minutes" in text for text in words)
    useless = replace(some, networks=[row("kept", 45), row("cnn", 44)])
    (text,) = (text for text in report.discovery_words(useless) if text.startswith("No network"))
    assert text.startswith(
        "No network of the table is better than a constant answer for sure, so use none of them (0.450 at best, the "
        "constant 0.500)."
    )
    assert not replace(some, networks=[row("kept", 55), row("cnn", 44)]).useful  # of 100 examples
    assert replace(some, networks=[row("kept", 75), row("cnn", 44)]).useful
    alike = replace(some, networks=[row("kept", 98), row("cnn", 97)])
    assert any("better than the others for sure; the best mean has" in text for text in report.discovery_words(alike))
    far = replace(some, networks=[row("kept", 98), replace(row("cnn", 30), epochs=1)])
    assert not any("Not all differences are certain" in text for text in report.discovery_words(far))
    assert any("Not all differences are certain" in text for text in report.discovery_words(some))
    plain = replace(some, networks=[row("kept", 80), row("cnn", 90)])
    assert plain.recommended is not None
    assert plain.recommended.kind == "cnn"
    table = report.discovery_scores(plain)
    assert table[2][0] == "plain CNN ←"
    assert table[1][1] == "0.800"


def test_where_the_table_speaks_against_it_there_is_no_best_guess() -> None:
    some = found(None, statement(WHOLE, "cannot tell", 0.0))
    assert "The best guess is all rotations and mirrors" in report.discovery_headline(some)
    assert some.doubt is None
    other = replace(some, networks=[row("kept", 75), row("p-scnn", 80), row("cnn", 100), row("augment", 74)])
    assert report.discovery_headline(other) == "Which symmetry the task has cannot be told from these examples."
    (doubt,) = (text for text in report.discovery_words(other) if text.startswith("Doubt"))
    assert "the plain CNN is better than the equivariant network (O(2)) by 25.0 points [" in doubt
    for few in ("kept", "cnn"):  # epochs say nothing about symmetries
        hasty = [replace(one, epochs=2) if one.kind == few else one for one in other.networks]
        assert replace(other, networks=hasty).doubt is None
    nearly = replace(some, networks=[row("kept", 970, 1000), row("cnn", 1000, 1000)])  # may be less than 3 points
    assert nearly.doubt is None


def test_errors_of_a_regression_are_in_variances() -> None:
    words = report.discovery_words(found(HALF, statement(HALF, "kept", 0.002), kind="numbers"))
    assert "half turns (C2) 0.002 [−0.008, 0.012]" in words[1]


def test_an_interrupted_answer_says_so_and_without_networks_there_is_no_report() -> None:
    some = replace(found(HALF), complete=False, networks=[])
    assert report.discovery_words(some)[-1].startswith("This is the answer so far")
    with pytest.raises(RunError, match="no network is finished in out"):
        report.write_discovery(some)
