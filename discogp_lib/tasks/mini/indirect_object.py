"""Indirect-object sentences: the paper's fifteen templates in both orders of the two names.

`Then, Mary and John went to the store. John gave a drink to` is ABBA (the receiver is named
first), with Mary and John exchanged at the start it is BABA. A sixth of the ordered pairs
(receiver, giver) is held out: the training corpus never contains them, the task only them.
"""

import random
import zlib

from discogp_lib.tasks.base import Row
from discogp_lib.tasks.mini import lexicon

HELD_OUT_SHARE = 6
"""One in this many ordered pairs of names is kept for the task."""
ORDERS = ("ABBA", "BABA")
NAMES = [*lexicon.NAMES["female"], *lexicon.NAMES["male"]]


def is_held_out(receiver: str, giver: str) -> bool:
    """Whether this ordered pair is kept for the task: a property of the names, not of a seed."""
    return zlib.crc32(f"{receiver}|{giver}".encode()) % HELD_OUT_SHARE == 0


def draw(rng: random.Random, *, held_out: bool, order: str | None = None) -> Row:
    """One prompt, held out or not; the corrupted one has a third name for the repeated giver."""
    while True:
        receiver, giver, third = rng.sample(NAMES, 3)
        if is_held_out(receiver, giver) == held_out:
            break
    order = order or rng.choice(ORDERS)
    template = rng.choice(lexicon.IOI_TEMPLATES)
    text = template.replace("[PLACE]", rng.choice(lexicon.PLACES))
    text = text.replace("[OBJECT]", rng.choice(lexicon.OBJECTS)).removesuffix(" [A]")
    if order == "ABBA":
        text = text.replace("[B] and [A]", "[A] and [B]")
    text = text.replace("[A]", receiver)
    start, repeated = text.split("[B]")[0], text.split("[B]")[1:]
    prompt = giver.join([start, *repeated])
    corrupted = third.join([giver.join([start, repeated[0]]), repeated[1]])
    return Row(prompt, f" {receiver}", f" {giver}", corrupted, order, template)
