"""Manual pages, shell completion, the recipe for conda, and what `--version` says."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import pathloom
from conftest import Cli
from pathloom.build import commit_of
from pathloom.cli.app import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("pathloom", "pathloom-controller", "pathloom-hostd", "pathloom-switch")


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manual pages and the completion, as packages have them."""
    folder = tmp_path_factory.mktemp("share")
    subprocess.run([sys.executable, str(ROOT / "scripts/share.py"), str(folder)], check=True)
    return folder


def test_the_manual_page_has_every_command_and_option(share: Path) -> None:
    page = (share / "man/man1/pathloom.1").read_text(encoding="utf-8").replace("\\-", "-")
    for line in (".SS pathloom sweep FILE.toml", ".SS pathloom artefact check DIR", ".SS pathloom controller status"):
        assert line in page
    assert ".B --within SHARE\n" in page and ".B --fabric SPEC\n" in page
    assert "pathloom artefact check artefact --within 5%" in page


@pytest.mark.parametrize("name", PAGES)
def test_a_manual_page_has_no_errors(share: Path, name: str) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    words = ["groff", "-K", "utf8", "-man", "-T", "utf8", "-ww", str(share / f"man/man1/{name}.1")]
    done = subprocess.run(words, capture_output=True, check=True)
    assert done.stderr == b""
    assert name in done.stdout.decode()


@pytest.mark.parametrize(
    ("program", "words", "expected"),
    [("pathloom", "pathloom transp", "transport"), ("pathloom-switch", "pathloom-switch cl", "clean")],
)
def test_bash_completes_with_the_packaged_file(share: Path, program: str, words: str, expected: str) -> None:
    script = f"""
source {share}/bash-completion/completions/{program}
PATH={Path(sys.executable).parent}:$PATH
COMP_WORDS=({words}) COMP_CWORD=1
if declare -F _pathloom_completion >/dev/null; then _pathloom_completion pathloom
else eval "COMPREPLY=(\\$(compgen $(complete -p {program} | sed 's/^complete//; s/ {program}$//') -- cl))"; fi
echo "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [expected], done.stderr


def test_packages_hold_the_manual_pages_and_the_completion(share: Path) -> None:
    script = (ROOT / "scripts/package.sh").read_text(encoding="utf-8")
    assert 'cp -R "$share/." pathloom._core.data/data/share/' in script
    assert '"$share/man/man1/$name.1"' in script
    assert '"$share/bash-completion/completions/$name"' in script
    for name in PAGES:
        assert (share / f"man/man1/{name}.1").is_file()
        assert (share / f"bash-completion/completions/{name}").is_file()


def test_the_recipe_for_conda_has_the_dependencies_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    recipe = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text(encoding="utf-8"))
    needed, extras = project["project"]["dependencies"], project["project"]["optional-dependencies"]

    def spelt(names: list[str]) -> set[str]:
        return {name.replace(" ", "").replace("matplotlib-base", "matplotlib") for name in names}

    python = f"python{project['project']['requires-python']}"
    assert spelt(recipe["requirements"]["run"]) == {*needed, python}
    optional = {one for extra, names in extras.items() if extra != "dev" for one in names}
    assert spelt(recipe["requirements"]["run_constraints"]) == optional
    assert {python, *needed, *project["build-system"]["requires"]} <= spelt(recipe["requirements"]["host"])
    assert recipe["context"]["version"] == pathloom.__version__
    assert recipe["about"]["license"] == project["project"]["license"]
    assert recipe["about"]["homepage"] == project["project"]["urls"]["Repository"]


def test_every_package_for_python_has_the_examples() -> None:
    for file in ("scripts/package.sh", "packaging/conda/recipe.yaml"):
        lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
        assert any(
            "install" in line and "share/pathloom/examples" in line and "examples/*.py" in line for line in lines
        )


def test_the_version_names_build_and_profile(cli: Cli) -> None:
    from pathloom import _core

    done = cli("--version")
    commit = commit_of(ROOT)
    assert done.out.startswith(f"pathloom {pathloom.__version__} (build ")
    assert done.out.endswith(f", {_core.__profile__})\n")
    assert (f"commit {commit[:12]}, " in done.out) if commit else ("commit" not in done.out)


def test_the_version_needs_no_command() -> None:
    code = "import sys; from pathloom.cli import run; run(['--version']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pathloom.cli.app", "typer", "numpy", "polars", "rich"} & set(done.stdout.split())


def test_a_commit_is_that_of_a_checkout_of_pathloom_alone(tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    (tmp_path / ".git/refs/heads").mkdir(parents=True)
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    (tmp_path / ".git/refs/heads/main").write_text(f"{commit}\n", encoding="utf-8")
    assert commit_of(tmp_path) is None, "another project"
    (tmp_path / "crates/python").mkdir(parents=True)
    (tmp_path / "crates/python/Cargo.toml").write_text("", encoding="utf-8")
    assert commit_of(tmp_path) == commit
    (tmp_path / ".git/refs/heads/main").unlink()
    assert commit_of(tmp_path) is None
    (tmp_path / ".git/packed-refs").write_text(f"# pack-refs\n{commit} refs/heads/main\n", encoding="utf-8")
    assert commit_of(tmp_path) == commit
    (tmp_path / ".git/HEAD").write_text(f"{commit}\n", encoding="utf-8")
    assert commit_of(tmp_path) == commit


def test_files_of_others_are_not_replaced_without_a_word(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Mine\n", encoding="utf-8")
    done = cli("reproduce", "ofpt/fig4a", "--quick", "--out", ".")
    assert (done.code, "has a README.md that is not of `pathloom reproduce`" in done.err) == (2, True), done.err
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "# Mine\n"
    (tmp_path / "s.toml").write_text(
        'fabric = "diamond"\ntraffic = "hadoop:load={load}"\nschemes = ["ecmp"]\n[grid]\nload = [0.2, 0.4]\n',
        encoding="utf-8",
    )
    (tmp_path / "throughput-by-load.svg").write_text("mine", encoding="utf-8")
    done = cli("sweep", "s.toml", "--out", ".")
    assert (done.code, "has throughput-by-load.svg but no result.json" in done.err) == (2, True), done.err
    (tmp_path / "d.json").write_text("mine", encoding="utf-8")
    assert cli("fabric", "export", "diamond", "--out", "d.json").out == "Exported: d.json (replaces an older file)\n"
    assert cli("fabric", "export", "diamond", "--out", "e.json").out == "Exported: e.json\n"


def test_a_command_does_not_import_the_others() -> None:
    program = (
        "import sys; import pathloom.cli.app as app; app.carry_out(['scheme', 'list']); "
        "print(*[name for name in sys.modules if name.startswith('pathloom.cli.')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "hedera" in done.stdout
    imported = {name.removeprefix("pathloom.cli.") for name in done.stderr.split()}
    commands = {place.partition(".")[0] for place in COMMANDS.values()}
    assert imported & commands == {"lists"}
