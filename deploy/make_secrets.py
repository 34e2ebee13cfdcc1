"""Make what docker-compose.yml and kubernetes/ take as secrets, and a first key: python3 deploy/make_secrets.py

Needs nothing but Python. Beside the key, which is printed once, nothing is shown. The folder can be entered by nobody
else; the files in it can be read by whoever is inside, for the users of containers are not the one who makes them.
"""

from __future__ import annotations

import argparse
import hashlib
import secrets
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from app.auth import SCOPES, add_key, new_key  # noqa: E402  # from this checkout, which need not be installed

ROLES = ("api", "compile", "generate")
HEALTH = "user health on >health resetkeys resetchannels -@all +ping"
KEDA = (  # reads how many jobs wait, by a script of its own, and nothing else
    "user keda on #{password} resetkeys ~abs:queue:*:waiting resetchannels -@all "
    "+auth +hello +ping +select +client|setinfo +client|setname +eval +type +zcard +llen"
)


def make_secrets(folder: Path, server: str, key_name: str) -> str:
    """Write the files for a server at `server`, host:port; the key. Raises FileExistsError where there are some."""
    folder.mkdir(mode=0o700, parents=True)
    rules = (ROOT / "deploy" / "redis" / "users.acl").read_text(encoding="utf-8")
    for role in ROLES:
        password = secrets.token_urlsafe(32)
        rules = rules.replace(f"{{{role}_password}}", _sha256(password))
        _write(folder / f"{role}_url", f"redis://{role}:{password}@{server}/0\n")
    password = secrets.token_urlsafe(32)
    keda = KEDA.replace("{password}", _sha256(password))
    _write(folder / "keda_password", password)
    _write(folder / "users", "\n".join([*_rules_alone(rules), HEALTH, keda, ""]))
    _write(folder / "signing", secrets.token_hex(32) + "\n")
    text, key = new_key(key_name, SCOPES)
    (folder / "keyring").mkdir()
    (folder / "keyring").chmod(0o755)  # whatever the umask: it is mounted, and its key is read by another user
    add_key(folder / "keyring" / "keys", key)
    (folder / "keyring" / "keys").chmod(0o644)
    return text


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _rules_alone(rules: str) -> list[str]:
    """The lines that name users: a file of them may hold no others."""
    return [line for line in rules.splitlines() if line.startswith("user ")]


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "deploy" / "secrets")
    parser.add_argument("--server", default="redis:6379", help="host and port of the server, as the containers see it")
    parser.add_argument("--key-name", default="first", help="whose the first key is")
    given = parser.parse_args()
    try:
        print(make_secrets(given.folder, given.server, given.key_name))
    except FileExistsError:
        print(f"{given.folder} is there already: take it away to make everything anew", file=sys.stderr)
        return 1
    print(f"The line above is a key for the API, shown once. The rest lies in {given.folder}.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
