"""The patterns that `format` asserts. Of each standard they cover the part that an automaton can check and that is in
use.

Some are narrower than their standards on purpose: no leap seconds, few scripts in host names, no comments in
addresses, few constructs in patterns. Whatever is accepted is valid. Knows nothing of schemas.
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
_LITERAL = rf"\[(?:{_ipv6()}|[vV][0-9A-Fa-f]+\.[A-Za-z0-9._!~$&'()*+,;=:-]+)\]"
_AUTHORITY = rf"(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|{_PERCENT})*@)?(?:{_REGISTERED}|{_LITERAL})(?::[0-9]*)?"
_URI = (
    f"[A-Za-z][A-Za-z0-9+.-]*:(?://{_AUTHORITY}(?:/{_PCHAR}*)*|/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?"
    rf"|{_PCHAR}+(?:/{_PCHAR}*)*|)(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
)
_UUID = "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"
_TAIL = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
# The first segment of a relative path has no colon, which would end a scheme.
_FIRST = f"(?:[A-Za-z0-9._~!$&'()*+,;=@-]|{_PERCENT})+"
_RELATIVE = f"(?://{_AUTHORITY}(?:/{_PCHAR}*)*|/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?|{_FIRST}(?:/{_PCHAR}*)*|){_TAIL}"
# RFC 3987: the characters beyond ASCII, and those for private use in queries.
_UCS = (
    "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef"
    + "".join(f"{chr(plane * 0x10000)}-{chr(plane * 0x10000 + 0xFFFD)}" for plane in range(1, 14))
    + f"{chr(0xE1000)}-{chr(0xEFFFD)}"
)
_PRIVATE = f"\ue000-\uf8ff{chr(0xF0000)}-{chr(0xFFFFD)}{chr(0x100000)}-{chr(0x10FFFD)}"


def _international(pattern: str) -> str:
    """The pattern of an IRI, from that of a URI."""
    # Every class of unreserved characters has the tilde; no other class has it before the mark.
    return pattern.replace("~!", f"~{_UCS}!").replace("|[/?])*)?(?:#", f"|[/?{_PRIVATE}])*)?(?:#")


_POINTER = "(?:/(?:[^~/]|~[01])*)*"
_VARIABLE = r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*(?:\*|:[1-9][0-9]{0,3})?"
# RFC 6570: literals without control characters, space and the delimiters.
_TEMPLATE = (
    rf"(?:[!#$&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~{_UCS}{_PRIVATE}]|{_PERCENT}"
    rf"|\{{[+#./;?&]?{_VARIABLE}(?:,{_VARIABLE})*\}})*"
)
_NUMERIC = "(?:0|[1-9][0-9]*)"
_IDENTIFIER = "(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = (
    rf"{_NUMERIC}\.{_NUMERIC}\.{_NUMERIC}(?:-{_IDENTIFIER}(?:\.{_IDENTIFIER})*)?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
# RFC 4648, section 4: with padding, without line breaks, and bits beyond the last octet are zero.
_BASE64 = "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?"
_BASE64_URL = _BASE64.replace("+/]", "_-]")
_IPV4_PREFIX = "(?:[12]?[0-9]|3[0-2])"
_IPV6_PREFIX = "(?:[1-9]?[0-9]|1[01][0-9]|12[0-8])"


def _ipv4_network() -> str:
    """The pattern of an IPv4 network, with zeros behind its prefix.

    An address alone is a network, too.
    """
    networks = [_IPV4]
    for prefix in range(33):
        whole, bits = divmod(prefix, 8)
        cut = [f"(?:{'|'.join(map(str, range(0, 256, 2 ** (8 - bits))))})"] if bits else []
        octets = [_OCTET] * whole + cut
        networks.append(r"\.".join(octets + ["0"] * (4 - len(octets))) + f"/{prefix}")
    return "|".join(networks)


def _ipv6_network() -> str:
    """The pattern of IPv6 networks with prefixes behind written groups."""
    networks = [f"(?:{_ipv6()})(?:/128)?"]
    for groups in range(8):
        written = ":".join([_HEX] * groups)
        longer = "|".join(str(prefix) for prefix in range(16 * groups, 129))
        networks.append(f"{written}::/(?:{longer})")
    return "|".join(networks)


_IPV4_INTERFACE = f"{_IPV4}(?:/{_IPV4_PREFIX})?"
_IPV6_INTERFACE = f"(?:{_ipv6()})(?:/{_IPV6_PREFIX})?"
_CIDR = rf"{_IPV4}/{_IPV4_PREFIX}|(?:{_ipv6()})/{_IPV6_PREFIX}"
# Lower-case letters that IDNA allows anywhere in a label: Latin-1, Cyrillic, Hiragana, Han and Hangul.
_LETTERS = "\u00df-\u00f6\u00f8-\u00ff\u0430-\u045f\u3041-\u3094\u4e00-\u9fa5\uac00-\ud7a3"
# A letter takes at most five characters of the 63 of an encoded label.
_IDN_LABEL = f"(?:{_SHORT_LABEL}|[a-z0-9{_LETTERS}]{{1,10}})"
_IDN_HOSTNAME = rf"{_IDN_LABEL}(?:\.{_IDN_LABEL}){{0,2}}"
_IDN_ATOM = _ATOM.replace("-]", "\x80-\U0010ffff-]")
_IDN_QUOTED = r'"(?:[ !#-\[\]-~\x80-\U0010ffff]|\\[ -~])*"'
_IDN_LOCAL = rf"(?:{_IDN_ATOM}(?:\.{_IDN_ATOM})*|{_IDN_QUOTED})"
_IDN_EMAIL = rf"{_EMAIL}|{_IDN_LOCAL}@(?:{_DOMAIN}|{_IDN_HOSTNAME})"


def _counts() -> str:
    """Counts in braces. The second is not below the first."""
    longer = "[0-9],[1-9][0-9]{1,2}|[1-9][0-9],[1-9][0-9]{2}"
    digits = "|".join(f"{digit},[{digit}-9]" for digit in range(10))
    tens = "|".join(f"{ten}[0-9],[{ten + 1}-9][0-9]" for ten in range(1, 9))
    units = "|".join(f"{ten}(?:{'|'.join(f'{unit},{ten}[{unit}-9]' for unit in range(10))})" for ten in range(1, 10))
    return rf"\{{(?:[0-9]{{1,3}},?|{longer}|{digits}|{tens}|{units})\}}"


def _members() -> str:
    """The members of a class. Ranges are of letters or digits; a hyphen alone stands at an end."""
    ends = {"A": "Z", "a": "z", "0": "9"}
    ranges = "|".join(
        rf"{chr(low)}-[{chr(low)}-{last}]" for first, last in ends.items() for low in range(ord(first), ord(last) + 1)
    )
    return rf"-?(?:{ranges}|[^\\\]-]|{_CODE}|\\[dDwWsSbnrtfv^$\\.*+?()\[\]{{}}|/-])+-?"


_CODE = r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})"


def _regex(depth: int) -> str:
    """A part of ECMAScript's patterns with `u`, which Python reads alike.

    They have no references, look-around and properties, and few nested groups.
    """
    plain = rf"[^\\^$.*+?()\[\]{{}}|]|{_CODE}|\\[dDwWsSnrtfv^$\\.*+?()\[\]{{}}|/]"
    group = rf"|\((?:\?:)?{_regex(depth - 1)}\)" if depth else ""
    item = rf"(?:{plain}|\.|\[\^?{_members()}\]{group})"
    return rf"(?:{item}(?:(?:[*+?]|{_counts()})\??)?|[\^$|]|\\[bB])*"


def _short_regex(depth: int) -> str:
    """Fewer of them. They take 50 states instead of 1,500, of which each sorts the tokens in another way."""
    plain = r"[^\\^$.*+?()\[\]{}|/\x00-\x1f\x7f-\U0010ffff]|\\[dDwWsSnrtfv^$\\.*+?()\[\]{}|/]"
    members = r"(?:a-z|A-Z|0-9|[A-Za-z0-9_ !%,.:;=@]|\\[dDwWsSnrtfv\\\]\[^-])+"
    # A repeated empty group would be one in most dialects, so that groups come first and repetitions after.
    group = rf"|\((?:\?:)?{_short_regex(depth - 1)}\)" if depth else ""
    repeated = rf"(?:{plain}|\.|\[\^?{members}\]{group})(?:(?:[*+?]|\{{[0-9]{{1,3}},?\}})\??)?"
    branch = rf"\^?(?:{repeated})*\$?"
    return rf"{branch}(?:\|{branch})*"


FORMATS: dict[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}[Tt]{_TIME}",
    "duration": f"P(?:{_DURATION_DATE}(?:{_DURATION_TIME})?|{_DURATION_TIME}|[0-9]+W)",
    "email": _EMAIL,
    "idn-email": _IDN_EMAIL,
    "hostname": _HOSTNAME,
    "idn-hostname": _IDN_HOSTNAME,
    "ipv4": _IPV4,
    "ipv6": _ipv6(),
    "uri": _URI,
    "uri-reference": f"(?:{_URI}|{_RELATIVE})",
    "iri": _international(_URI),
    "iri-reference": _international(f"(?:{_URI}|{_RELATIVE})"),
    "uri-template": _TEMPLATE,
    "uuid": _UUID,
    "json-pointer": _POINTER,
    "relative-json-pointer": f"{_NUMERIC}(?:#|{_POINTER})",
    "regex": _regex(3),
    "url": _URI,
    "semver": _SEMVER,
    "cidr": _CIDR,
    "byte": _BASE64,
}
FORMATS |= {  # pydantic's
    "base64": _BASE64,
    "base64url": _BASE64_URL,
    "ipv4network": _ipv4_network(),
    "ipv6network": _ipv6_network(),
    "ipv4interface": _IPV4_INTERFACE,
    "ipv6interface": _IPV6_INTERFACE,
    "ipvanyaddress": f"{_IPV4}|{_ipv6()}",
    "ipvanynetwork": f"{_ipv4_network()}|{_ipv6_network()}",
    "ipvanyinterface": f"{_IPV4_INTERFACE}|{_IPV6_INTERFACE}",
}
FORMATS |= {"ip-address": _IPV4, "host-name": _HOSTNAME}  # their names in draft 3
_ADDRESSES = (_LITERAL, _international(_LITERAL), rf"\[(?:{_IPV4}|IPv6:(?:{_ipv6()}))\]")  # hosts in brackets
SHORT_CHARS_MAX = 253  # of a counted text in the short form of a format
INTEGERS = {"int32": 31, "int64": 63}  # formats of numbers: the bits beside the sign
SILENT = frozenset(  # formats that say how a value is meant or kept: nothing is asserted
    {"binary", "double", "float", "json-string", "password", "path", "utc-millisec"}
)
_ENCODED = r"(?:[^.]*\.)*[^.]{2}--.*"  # encoded labels, which take tables to check
EXCEPT: dict[str, str] = {  # what a format's pattern matches and the format does not allow
    "hostname": _ENCODED,
    "host-name": _ENCODED,
    "idn-hostname": _ENCODED,
    "idn-email": rf".*@{_ENCODED}",
}


def short_pattern(name: str) -> str:
    """A pattern of fewer texts, with a tenth of the states.

    It has no hosts in brackets, host names of at most three short labels, and simple regexes.
    """
    if name == "regex":
        return _short_regex(2)
    pattern = FORMATS[name].replace(_HOSTNAME, rf"(?:{_SHORT_LABEL})(?:\.(?:{_SHORT_LABEL})){{0,2}}")
    for host in _ADDRESSES:
        pattern = pattern.replace(f"|{host}", "")
    return pattern
