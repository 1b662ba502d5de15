"""The drawings in the documentation are what the product draws today; photographs are not held."""

from __future__ import annotations

from tests.docs.pictures import FOLDER, drawn


def test_pictures_are_as_they_would_be_drawn() -> None:
    made = drawn()
    assert made.keys() == {each.name for each in FOLDER.glob("*.svg")}
    for name, content in made.items():
        message = f"run `python -m tests.docs.pictures`: {name} is drawn otherwise now"
        assert (FOLDER / name).read_text("utf-8") == content, message
        assert f"(pictures/{name})" in "".join(
            page.read_text("utf-8") for page in FOLDER.parent.glob("*.md")
        )
