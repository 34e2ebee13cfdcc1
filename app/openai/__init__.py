"""The calls of OpenAI's API, as far as they mean something here: completions and chat completions."""
