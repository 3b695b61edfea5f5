"""Make foreign names and texts safe to print."""


def printable(text: str) -> str:
    r"""Return `text` with what could steer a terminal, and bytes that are not UTF-8, written as \x1b and the like."""
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def _escaped(one: str) -> str:
    if "\udc80" <= one <= "\udcff":  # a byte of a name that is not UTF-8, as Python holds it
        return f"\\x{ord(one) - 0xDC00:02x}"
    return one.encode("unicode_escape", "surrogatepass").decode()
