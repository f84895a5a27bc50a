"""Figures, gaps and tables as the page shows them."""


def figure(value, digits=0):
    if value is None:
        return "-"
    return f"{value:,.{digits}f}"


def gap(measured, bound, more):
    """How far from the target, in words."""
    if measured is None or bound is None:
        return "not measured"
    if (measured >= bound) if more else (measured <= bound):
        return "met"
    return f"{100 * (measured / bound - 1):+.0f} %"


def table(heads, lines):
    """A table that reads well as text, too."""
    cells = [heads, *lines]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]

    def row(line):
        padded = [cell.ljust(width) if column == 0 else cell.rjust(width)
                  for column, (cell, width) in enumerate(zip(line, widths))]
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join("-" * (width + 1) + ("-" if column == 0 else ":") for column, width in enumerate(widths)) + "|"
    return "\n".join([row(heads), rule, *map(row, lines)])
