"""The patterns that `format` asserts. Of each standard they cover the part that an automaton can check and that is in
use.

All are ASCII. Narrower than their standards on purpose: no leap seconds, no internationalised host names, no comments
in addresses. Whatever is accepted is valid. Knows nothing of schemas.
"""

from __future__ import annotations

# Leap years: divisible by 4 and not by 100, or divisible by 400.
_LEAP = "(?:(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26]))|(?:(?:[02468][48]|[2468]0|[13579][26])00))"
_YEAR = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = f"{_CLOCK}:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+-]{_CLOCK})"
_DURATION_TIME = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DURATION_DATE = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_HEX = "[0-9A-Fa-f]{1,4}"


def _ipv6() -> str:
    """The pattern of an IPv6 address.

    It has eight groups, `::` for one run of zeros, and perhaps an IPv4 address for the last two.
    """
    last = f"(?:{_HEX}:{_HEX}|{_IPV4})"
    alternatives = [f"(?:{_HEX}:){{6}}{last}"]
    # Exactly `before` groups stand before `::`, and at most 7 - before behind it. An IPv4 address counts as two.
    for before in range(8):
        after = 7 - before  # `::` stands for one group at least
        ends = [""] + [f"(?:{_HEX}:){{{count - 1}}}{_HEX}" for count in range(1, after + 1)]
        ends += [f"(?:{_HEX}:){{{count - 2}}}{_IPV4}" for count in range(2, after + 1)]
        groups = f"(?:{_HEX}(?::{_HEX}){{{before - 1}}})" if before else ""
        alternatives.append(f"{groups}::(?:{'|'.join(ends)})")
    return "|".join(alternatives)


_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_SHORT_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,22}[A-Za-z0-9])?"
_HOSTNAME = rf"(?:{_LABEL})(?:\.(?:{_LABEL})){{0,2}}|(?:{_SHORT_LABEL})(?:\.(?:{_SHORT_LABEL})){{0,9}}"
_DOMAIN = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
# The characters of an atom in RFC 5321.
_ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_QUOTED = r'"(?:[ !#-\[\]-~]|\\[ -~])*"'
_EMAIL = rf"(?:{_ATOM}(?:\.{_ATOM})*|{_QUOTED})@(?:{_DOMAIN}|\[(?:{_IPV4}|IPv6:(?:{_ipv6()}))\])"
_PERCENT = "%[0-9A-Fa-f]{2}"
_PCHAR = f"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|{_PERCENT})"
_REGISTERED = f"(?:[A-Za-z0-9._~!$&'()*+,;=-]|{_PERCENT})*"
_AUTHORITY = rf"(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|{_PERCENT})*@)?(?:{_REGISTERED}|\[(?:{_ipv6()})\])(?::[0-9]*)?"
_URI = (
    f"[A-Za-z][A-Za-z0-9+.-]*:(?://{_AUTHORITY}(?:/{_PCHAR}*)*|/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?"
    rf"|{_PCHAR}+(?:/{_PCHAR}*)*|)(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
)
_UUID = "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"

FORMATS: dict[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}[Tt]{_TIME}",
    "duration": f"P(?:{_DURATION_DATE}(?:{_DURATION_TIME})?|{_DURATION_TIME}|[0-9]+W)",
    "email": _EMAIL,
    "hostname": _HOSTNAME,
    "ipv4": _IPV4,
    "ipv6": _ipv6(),
    "uri": _URI,
    "uuid": _UUID,
}
SILENT = frozenset(  # formats that say how a value is meant or kept: nothing is asserted
    {"binary", "byte", "double", "float", "int32", "int64", "json-string", "password", "path"}
)
EXCEPT: dict[str, str] = {  # what a format's pattern matches and the format does not allow
    "hostname": r"(?:[A-Za-z0-9-]*\.)*[A-Za-z0-9-]{2}--[A-Za-z0-9.-]*",  # encoded labels, which take tables to check
}
