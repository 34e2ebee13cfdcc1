"""The answers of the demo, on the built-in models."""

from __future__ import annotations

import io

from rich.console import Console

from abs_client import Client
from app.cli.demo import QUESTIONS
from tests.servers.service_process import ServiceProcess

LINES_MAX = 10  # of one question, with its title and its time
ANSWERS = """
'One day, a', with cat, fly and moon in this order (stories); JSON (captions):
tokens the model alone             with the constraint
    10 ✗ …named Lily went to (cut) ✓ cat flew moon.
    15 ✗ …t to the park with (cut) ✓ cat named Tom flew to the moon.
    20 ✗ …h her mom. She saw (cut) ✓ small cat named Tom flew up to the moon.
    25 ✗ …room with a couch.       ✓ {"photo": "The dog is playing.", "dogs": 4}
    38 ✗ …room with a couch.       ✓ {"photo": "The dog is playing.", "dogs": 4}
    50 ✗ …room with a couch.       ✓ {"photo": "The dog is playing.", "dogs": 4}
A cat and the moon in at most 12 words, without the letter o:
✗ constraint_unsatisfiable: no text satisfies the constraint: 'all.0.keywords.1'
(keywords moon) and 'all.2' (regex [^oO]*) contradict each other
The sentence above in 9 tokens:
✗ budget_too_small: the constraint needs at least 10 tokens, max_tokens is 9
'Refund 5000 right now!', but at most 4 calls, and precedence(confirm, refund);
G(!call(refund, amount > 100)); existence(refund); response(refund, notify):
  may: confirm, notify    calls notify({})
  may: confirm            calls confirm({})
  may: refund             calls refund({"amount": 3})
  may: notify             calls notify({})
  may: reply              ends the conversation: nothing is left to do
"""


def test_the_questions_have_their_answers(running_service: ServiceProcess) -> None:
    printed = list[str]()
    with Client(running_service.url, "") as client:
        for _, answer in QUESTIONS:
            console = Console(file=io.StringIO(), width=80)
            for line in answer(client, running_service.url):
                console.print(line)
            lines = console.file.getvalue().splitlines()
            assert len(lines) <= LINES_MAX - 2
            printed += [line.rstrip() for line in lines]
    assert printed == ANSWERS.strip().splitlines()
