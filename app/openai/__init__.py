"""The OpenAI-compatible API.

A completion or chat completion in OpenAI's format is read, with its constraint in any of the spellings that clients
use, and translated into a request of POST /generate. The result is rendered in OpenAI's format, in one response or as a
stream whose text never changes after it is sent.
"""
