"""The answers of the demo, on the built-in model."""

from __future__ import annotations

import io

from rich.console import Console

from abs_client import Client
from app.cli.demo import QUESTIONS
from tests.servers.service_process import ServiceProcess

LINES_MAX = 10  # of one question, with its title and its time
ANSWERS = """
A sentence with dog, catch and frisbee in this order; JSON of a schema:
tokens the model alone             with the constraint
     7 ✗ A dog is taking a dog     ✓ dog caught frisbee.
    11 ✗ A dog is taking a dog.    ✓ A dog caught a frisbee.
    14 ✗ A dog is taking a dog.    ✓ A dog caught a frisbee.
    25 ✗ A man is looking at a ro… ✓ {"photo": "The dog is playing.", "dogs": 4}
    38 ✗ A man is looking at a ro… ✓ {"photo": "The dog is playing.", "dogs": 4}
    50 ✗ A man is looking at a ro… ✓ {"photo": "The dog is playing.", "dogs": 4}
A dog and a frisbee in at most 12 words, without the letter g:
✗ constraint_unsatisfiable: no text satisfies the constraint: 'all.0.keywords.0'
(keywords dog) and 'all.2' (regex [^gG]*) contradict each other
The sentence above in 6 tokens:
✗ budget_too_small: the constraint needs at least 7 tokens, max_tokens is 6
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
