from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pscnn import PscnnError
from pscnn.data.known import TASKS, Kept
from pscnn.experiments import OUTCOMES, answer_counts, answer_rows, judge, read_answers, write_answers
from pscnn.experiments._known import words


@dataclass
class Said:
    subgroup: Kept
    verdict: str


@pytest.mark.parametrize("name", TASKS)
def test_the_truth_is_right(name: str) -> None:
    task = TASKS[name]
    for one in task.truth:
        assert judge(task, one, [Said(one, "kept")]).outcome == "right"
        assert judge(task, one, [Said(one, "broken")]).outcome == "confidently wrong"
    expected = "right" if not task.truth or task.may_abstain else "cannot tell"
    assert (
        judge(task, None, [Said(Kept("C(2)" if task.dimension == 2 else "C(2)@x"), "cannot tell")]).outcome == expected
    )


@pytest.mark.parametrize(
    ("task", "kept", "outcome"),
    [
        ("up-down", Kept("D(1)", 96), "right"),
        ("up-down", Kept("D(1)", 100), "too little"),  # neither right nor clearly another mirror
        ("up-down", Kept("D(1)", 105), "confidently wrong"),
        ("left-right", Kept("D(1)", 178), "right"),  # lines at 0° and 180° are the same
        ("up-down", Kept("C(1)"), "too little"),
        ("up-down", Kept("D(2)", 90), "confidently wrong"),
        ("bars", Kept("D(2)", 90), "right"),  # it has both lines
        ("bars", Kept("C(2)"), "too little"),
        ("bars", Kept("D(1)", 0), "too little"),
        ("bars", Kept("C(4)"), "confidently wrong"),
        ("squares-22", Kept("D(4)", 67.5), "right"),
        ("squares-22", Kept("D(4)", 45), "confidently wrong"),
        ("six-nine", Kept("D(1)", 12), "right"),  # any one mirror
        ("six-nine", Kept("D(2)", 12), "confidently wrong"),
        ("N-Z", Kept("D(2)", 77), "right"),
        ("N-Z", Kept("D(1)", 77), "too little"),
        ("b-mirrored", Kept("O(2)"), "confidently wrong"),
        ("b-mirrored", Kept("C(8)"), "too little"),
        ("polygons", Kept("SO(2)"), "too little"),
        ("noise", Kept("O(2)"), "confidently wrong"),
        ("volume-up-down", Kept("O(2)@(0,0.1,1)"), "right"),
        ("volume-up-down", Kept("O(2)@x"), "confidently wrong"),
        ("volume-up-down", Kept("O(2)@z, turn"), "confidently wrong"),
        ("volume-up-down", Kept("SO(2)@z"), "too little"),
        ("volume-up-down", Kept("SO(3)"), "confidently wrong"),
        ("volume-helices", Kept("O(3)"), "confidently wrong"),
        ("volume-helices", Kept("C(3)@x"), "too little"),
        ("volume-components", Kept("C(1)@x"), "right"),
    ],
)  # fmt: skip
def test_answers_are_compared_with_the_truth(task: str, kept: Kept, outcome: str) -> None:
    assert judge(TASKS[task], kept, []).outcome == outcome


def test_a_statement_can_be_wrong_although_the_answer_is_right() -> None:
    task = TASKS["bars"]
    found = judge(task, Kept("D(2)", 0), [Said(Kept("C(2)"), "broken"), Said(Kept("C(4)"), "broken")])
    assert found.outcome == "confidently wrong"
    assert found.why == ("C(2) is said to be broken",)
    found = judge(task, None, [Said(Kept("D(1)", 45), "kept")])
    assert found.why == ("D(1) at 45° is said to be kept",)
    for angle, outcome in ((2, "confidently wrong"), (8, "right")):  # a mirror nearby may well be broken
        assert judge(task, Kept("D(2)", 0), [Said(Kept("D(1)", angle), "broken")]).outcome == outcome


def test_nothing_is_said_about_noise() -> None:
    for verdict in ("kept", "broken"):
        assert judge(TASKS["noise"], None, [Said(Kept("C(2)"), verdict)]).outcome == "confidently wrong"


def test_subgroups_have_names() -> None:
    named = [None, Kept("C(1)@z"), Kept("D(1)", 22.5), Kept("D(2)"), Kept("SO(2)"), Kept("O(2)@z"), Kept("D(1)@z", 0)]
    expected = ["cannot tell", "the identity", "D(1) at 22.5°", "D(2) at any angle", "SO(2)", "O(2)@z", "D(1)@z at 0°"]
    assert list(map(words, named)) == expected


def answer(outcome: str, seconds: float) -> dict[str, object]:
    return {
        "outcome": outcome,
        "said": "C(2)",
        "why": [],
        "statements": [],
        "seconds": seconds,
        "minutes": 5,
        "seed": 0,
    }


def test_answers_are_stored_and_counted(tmp_path: Path) -> None:
    answers = {"bars": answer("right", 200.4), "noise": answer("cannot tell", 61)}
    write_answers(tmp_path / "answers.json", answers)
    assert read_answers(tmp_path / "answers.json") == answers
    assert read_answers(tmp_path / "none.json") == {}
    head, bars, few = answer_rows(answers, ["bars", "few-bars"])
    assert bars[2:] == ["D(2) at 0°", "C(2)", "right", "3:20"]
    assert few[2:] == ["D(2) at 0°, or cannot tell", "", "", ""]
    assert len(head) == len(bars)
    counts = answer_counts(answers, ["bars", "noise", "few-bars"])
    assert counts == "2 tasks: 1 right, 1 cannot tell, 0 too little, 0 confidently wrong; the slowest took 3:20 minutes"
    assert "right" in OUTCOMES


@pytest.mark.parametrize("text", ["", "[]", '{"answers": {"bars": {}}}', '{"answers": {"cars": {"outcome": "right"}}}'])
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "answers.json").write_text(text)
    with pytest.raises(PscnnError, match="holds no answers of pscnn benchmark-discover"):
        read_answers(tmp_path / "answers.json")
