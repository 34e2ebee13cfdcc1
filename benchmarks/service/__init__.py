"""Measures the service under load and in a new user's browser.

`load` starts `abs up` with its real processes and sends requests from many clients (`http_client`). `page` measures the
time from a clone of the repository to the first answer in the playground.
"""
