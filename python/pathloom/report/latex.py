"""Tables as LaTeX, for papers: a `tabular` that needs no package."""

from __future__ import annotations

from pathloom.report.tables import Table

_ESCAPED = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "−": "$-$",
    "µ": r"$\mu$",
    "→": r"$\rightarrow$",
    "–": "--",
    "…": r"\ldots{}",
    "\u202f": r"\,",
}


def escaped(text: str) -> str:
    r"""A text with the special characters of LaTeX escaped.

    >>> escaped("5 % ± 2_a")
    '5 \\% $\\pm$ 2\\_a'
    """
    return "".join(_ESCAPED.get(letter, letter) for letter in text)


def latex(table: Table, *, turned: bool = False) -> str:
    r"""A table as a `tabular`; the best value of a column is bold.

    With `turned`, columns become rows: many figures of a few schemes then fit on a page.

    >>> print(latex(Table(["scheme", "load_1"], [["ecmp", "50 %"]], [None, 0])), end="")
    \begin{tabular}{lr}
    \hline
    scheme & load\_1 \\
    \hline
    ecmp & \textbf{50 \%} \\
    \hline
    \end{tabular}
    >>> print(latex(Table(["scheme", "load_1"], [["ecmp", "50 %"]], [None, 0]), turned=True), end="")
    \begin{tabular}{lr}
    \hline
    scheme & ecmp \\
    \hline
    load\_1 & \textbf{50 \%} \\
    \hline
    \end{tabular}
    """
    rows = [
        [
            rf"\textbf{{{escaped(cell)}}}" if table.best[column] == place else escaped(cell)
            for column, cell in enumerate(row)
        ]
        for place, row in enumerate(table.rows)
    ]
    headings, *rows = [list(map(escaped, table.headings)), *rows]
    if turned:
        headings, *rows = map(list, zip(headings, *rows, strict=True))
    lines = [
        rf"\begin{{tabular}}{{l{'r' * (len(headings) - 1)}}}",
        r"\hline",
        " & ".join(headings) + r" \\",
        r"\hline",
        *(" & ".join(row) + r" \\" for row in rows),
        r"\hline",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"
