"""What is said about how examples come, and about augmenting."""

from __future__ import annotations

from itertools import product

import pytest

from pscnn.experiments import Presence
from pscnn.groups import SO2, C, D, Group
from pscnn.report import presence_words
from pscnn.report._presence import VERDICTS


def result(group: Group, present: bool | None, share: float = 0.5, **more: bool | None) -> Presence:
    return Presence(group, None, share, share - 0.1, share + 0.1, 400, present, **more)


def test_upright_images_and_answers_that_depend_on_the_angle_are_two_things() -> None:
    upright = [result(C(2), False, 0.97), result(SO2(), False, 0.88)]
    stays, depends = (presence_words(upright, 2 * [verdict]) for verdict in ("kept", "broken"))
    assert stays == [
        "The examples do not come transformed by half turns (C2) and all rotations (SO(2)), so poses are not alike (of "
        "an example and its copy, a small classifier finds the copy in 88 % to 97 %; half would be chance); no answer "
        "here depends on it: it can be enforced, and augmenting by it does no harm; whether answers would stay if new "
        "examples came so, no example tells: you have to know."
    ]
    assert "the answer depends on it: do not augment" in depends[0]
    assert "other answers would be right" in depends[0]


@pytest.mark.parametrize(("present", "verdict"), list(product((True, False, None), VERDICTS)))
def test_every_case_has_its_advice(present: bool | None, verdict: str) -> None:
    (said,) = presence_words([result(C(4), present, 0.7)], [verdict])
    assert "quarter turns (C4)" in said
    assert ("cannot be told;" in said) == (present is None)
    assert ("70 %" in said) == (present is False)
    if verdict == "broken":
        assert "do not augment" in said
    if verdict == "kept":
        assert "augmenting by it is right" in said or "augmenting by it does no harm" in said


def test_different_findings_are_not_mixed() -> None:
    said = presence_words([result(C(2), True), result(D(1), False, 0.9)], ["kept", "broken"])
    assert len(said) == 2
    assert "half turns" in said[0]
    assert "mirror" not in said[0]
    assert "left–right mirror" in said[1]


def test_mirror_lines_have_their_angle_and_poses_that_tell_the_class_are_named() -> None:
    line = Presence(D(1), 30.0, 0.5, 0.45, 0.55, 400, True, within_classes=False)
    said = presence_words([line], ["broken"])
    assert "the mirror line at 30°" in said[0]
    assert "the pose tells something about the class" in said[1]


def test_verdicts_are_checked() -> None:
    with pytest.raises(ValueError, match="a verdict must be one of kept, broken, cannot tell, got 'lost'"):
        presence_words([result(C(2), True)], ["lost"])
    with pytest.raises(ValueError, match="a verdict for each of 1 tests, got 0"):
        presence_words([result(C(2), True)], [])
