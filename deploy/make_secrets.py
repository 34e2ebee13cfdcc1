"""Make the secrets of docker-compose.yml and kubernetes/, and a first key: python3 deploy/make_secrets.py

Needs only Python. Prints the key once, and no other secret. The folder is closed to other users. The files in it are
readable for all, because containers do not run as the user who makes the files.
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
KEDA = (  # counts waiting jobs by its own script, and has no other rights
    "user keda on #{password} resetkeys ~{abs}:queue:*:waiting resetchannels -@all "
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
    parser.add_argument("--key-name", default="first", help="name of the first key")
    given = parser.parse_args()
    try:
        print(make_secrets(given.folder, given.server, given.key_name))
    except FileExistsError:
        print(f"{given.folder} exists already; remove it to make new secrets", file=sys.stderr)
        return 1
    print(f"The line above is a key for the API, shown once. The other secrets are in {given.folder}.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
