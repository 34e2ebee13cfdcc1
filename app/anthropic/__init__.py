"""Anthropic's Messages API, `/v1/messages`, as a translation of the OpenAI-compatible chat.

`requests` reads a request as a chat. `app.openai` translates and runs it, and `writer` renders the answer. `errors` has
the format of errors, which middleware uses too.
"""
