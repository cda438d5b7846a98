"""IOI: of two people, who is given something."""

import random
from collections.abc import Sequence

from discogp_lib.tasks.base import Row

TEMPLATES = (
    "Then, [B] and [A] went to the [PLACE]. [B] gave a [OBJECT] to [A]",
    "Then, [B] and [A] had a lot of fun at the [PLACE]. [B] gave a [OBJECT] to [A]",
    "Then, [B] and [A] were working at the [PLACE]. [B] decided to give a [OBJECT] to [A]",
    (
        "Then, [B] and [A] were thinking about going to the [PLACE]. "
        "[B] wanted to give a [OBJECT] to [A]"
    ),
    "Then, [B] and [A] had a long argument, and afterwards [B] said to [A]",
    "After [B] and [A] went to the [PLACE], [B] gave a [OBJECT] to [A]",
    "When [B] and [A] got a [OBJECT] at the [PLACE], [B] decided to give it to [A]",
    "When [B] and [A] got a [OBJECT] at the [PLACE], [B] decided to give the [OBJECT] to [A]",
    "While [B] and [A] were working at the [PLACE], [B] gave a [OBJECT] to [A]",
    "While [B] and [A] were commuting to the [PLACE], [B] gave a [OBJECT] to [A]",
    "After the lunch, [B] and [A] went to the [PLACE]. [B] gave a [OBJECT] to [A]",
    "Afterwards, [B] and [A] went to the [PLACE]. [B] gave a [OBJECT] to [A]",
    "Then, [B] and [A] had a long argument. Afterwards [B] said to [A]",
    "The [PLACE] [B] and [A] went to had a [OBJECT]. [B] gave it to [A]",
    "Friends [B] and [A] found a [OBJECT] at the [PLACE]. [B] gave it to [A]",
)
"""The paper's templates, in the order BABA: the giver [B] is named first."""

PLACES = ("store", "garden", "restaurant", "school", "hospital", "office", "house", "station")
OBJECTS = ("ring", "kiss", "bone", "basketball", "computer", "necklace", "drink", "snack")

_PRINTED = """
    Michael Christopher Jessica Matthew Ashley Jennifer Joshua Daniel David James Robert John
    Joseph Andrew Ryan Justin Sarah William Jonathan Stephanie Brian Nicole Heather Eric
    Elizabeth Adam Megan Melissa Kevin Steven Timothy Christina Kyle Rachel Laura Lauren Amber
    Richard Kimberly Jeffrey Amy Crystal Michelle Tiffany Mark Emily Aaron Charles Rebecca Jacob
    Stephen Patrick Kelly Samantha Nathan Sara Dustin Paul Angela Tyler Andrea Gregory Erica
    Mary Travis Lisa Kenneth Bryan Jose Alexander Jesse Katie Lindsay Shannon Vanessa Alicia
    Cody Allison Bradley Samuel
"""
PAPER_NAMES = tuple(_PRINTED.split())
"""The 80 names the paper's table prints in full; the original list has 99."""

ORDERS = ("ABBA", "BABA")


def ioi_rows(names: Sequence[str], count: int, *, seed: int) -> list[Row]:
    """`count` distinct prompts, templates in turn, half of them in each order.

    In ABBA the receiver [A] is named first, in BABA the giver [B]; with one order alone, "repeat
    the first name" (or the second) would solve the task. In the corrupted prompt the giver's
    second mention is a third name, so that nothing says any more who receives.
    """
    rng = random.Random(f"ioi/{seed}")
    rows: dict[str, Row] = {}
    while len(rows) < count:
        turn = len(rows)
        template = TEMPLATES[turn // len(ORDERS) % len(TEMPLATES)]
        row = ioi_row(
            template,
            ORDERS[turn % len(ORDERS)],
            rng.sample(names, 3),
            place=rng.choice(PLACES),
            thing=rng.choice(OBJECTS),
        )
        rows.setdefault(row.prompt, row)
    return list(rows.values())


def ioi_row(template: str, order: str, people: Sequence[str], *, place: str, thing: str) -> Row:
    """One prompt for the receiver, the giver and a third person, cut before the receiver's name."""
    receiver, giver, third = people
    text = template.removesuffix(" [A]").replace("[PLACE]", place).replace("[OBJECT]", thing)
    if order == "ABBA":
        text = text.replace("[B] and [A]", "[A] and [B]")
    before, _, after = text.rpartition("[B]")
    prompt, corrupted = (
        (before + name + after).replace("[A]", receiver).replace("[B]", giver)
        for name in (giver, third)
    )
    return Row(prompt, f" {receiver}", f" {giver}", corrupted, order, template)
