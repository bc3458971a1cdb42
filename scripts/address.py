"""Write the repository's public address wherever a release needs it, or say where it is missing.

python scripts/address.py                                 # fails and says where it is missing
python scripts/address.py https://github.com/OWNER/NAME   # writes it

The address is written into `[project.urls]`, into CITATION.cff, and into the substitutions of
pyproject.toml. With these substitutions, the links and pictures of the README work on a package
index. Without them, the README on a package index has no links and no pictures.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = r"\[([^\]]*)\]\((?!https://)([^)]*)\)"  # link to a path of the repository


def substitutions(address: str) -> str:
    """Return the lines of pyproject.toml that complete the README's links for a package index."""
    rules = [
        f"{{ pattern = '{sign}{LINK}', replacement = '{sign}[\\1]({address}/{kind}/main/\\2)' }}"
        for sign, kind in (("!", "raw"), ("", "blob"))
    ]
    return "substitutions = [\n" + "".join(f"    {rule},\n" for rule in rules) + "]\n"


def missing(root: Path) -> list[str]:
    """Return a message for each place that lacks the address of `[project.urls]`."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    address = tomllib.loads(text)["project"].get("urls", {}).get("Repository")
    if not address:
        return ["[project.urls] has no Repository: python scripts/address.py ADDRESS writes it"]
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    places = {
        "CITATION.cff": f'repository-code: "{address}"\n' in citation,
        "the README's links, in pyproject.toml": substitutions(address) in text,
    }
    return [f"{place}: lacks {address}" for place, there in places.items() if not there]


def write(root: Path, address: str) -> None:
    """Write the address into all three places, and replace an older one."""
    if not re.fullmatch(r"https://[\w.-]+(/[\w.-]+)+", address):
        raise SystemExit(f"address: {address!r} is not like https://github.com/OWNER/NAME")
    project, citation = root / "pyproject.toml", root / "CITATION.cff"
    text = project.read_text(encoding="utf-8")
    text = re.sub(r"\[project\.urls\]\n(?:.+\n)*\n", "", text)
    urls = "\n".join(
        f'{name} = "{address}{path}"'
        for name, path in {
            "Repository": "",
            "Documentation": "/blob/main/docs/index.md",
            "Changelog": "/blob/main/CHANGELOG.md",
            "Issues": "/issues",
        }.items()
    )
    head = "[project.entry-points"
    text = text.replace(head, f"[project.urls]\n{urls}\n\n{head}", 1)
    rules = re.compile(r"substitutions = \[\n.*?\n\]\n", re.DOTALL)
    text = rules.sub(lambda _: substitutions(address), text)
    project.write_text(text, encoding="utf-8")
    lines = citation.read_text(encoding="utf-8").splitlines(keepends=True)
    lines = [line for line in lines if not line.startswith("repository-code:")]
    at = next(i for i, line in enumerate(lines) if line.startswith("license:"))
    lines.insert(at, f'repository-code: "{address}"\n')
    citation.write_text("".join(lines), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Write the address if it is given, then check all places."""
    if arguments:
        write(ROOT, arguments[0].rstrip("/"))
    problems = missing(ROOT)
    for problem in problems:
        print(f"address: {problem}", file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
