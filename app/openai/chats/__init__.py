"""The turns of the model in chats.

`chat_turn` makes the prompt from messages and tools by the model's chat template, and finds the format of the answer.
`policies` narrows the tools to those that the rules of a policy leave possible.
"""
