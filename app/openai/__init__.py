"""The OpenAI-compatible API.

A request of OpenAI's completions or chat completions is read, with the constraint in any of the spellings that clients
use, and translated into one of our own. The answer is rendered in OpenAI's shapes, whole or as a stream whose text
never changes once it is sent.
"""
