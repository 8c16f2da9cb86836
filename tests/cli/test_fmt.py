"""fmt: what it touches, what it leaves alone, and its exit codes."""

from __future__ import annotations

from tests.cli.kit import HEAD, Folder

UGLY = HEAD + "vars:   {a:   1}   # why\nmodules:\n- name: m\n  tasks: []\n"


def test_a_file_is_formatted_in_place_and_keeps_mode_comments_and_meaning(folder: Folder) -> None:
    path = folder.file("a.yaml", UGLY)
    path.chmod(0o640)
    result = folder.run("fmt", "a.yaml")
    assert (result.exit_code, result.stdout) == (0, "formatted a.yaml\n")
    assert path.stat().st_mode & 0o777 == 0o640
    text = path.read_text("utf-8")
    assert "# why" in text
    assert text != UGLY
    assert folder.run("fmt", "a.yaml").stdout == "1 file is formatted.\n"
    assert path.read_text("utf-8") == text


def test_a_link_stays_a_link(folder: Folder) -> None:
    folder.file("real/a.yaml", UGLY)
    (folder.path / "a.yaml").symlink_to("real/a.yaml")
    assert folder.run("fmt", "a.yaml").exit_code == 0
    assert (folder.path / "a.yaml").is_symlink()
    assert (folder.path / "real/a.yaml").read_text("utf-8") != UGLY


def test_check_and_diff_change_nothing(folder: Folder) -> None:
    path = folder.file("a.yaml", UGLY)
    result = folder.run("fmt", "--check", "a.yaml")
    assert (result.exit_code, result.stderr) == (1, "a.yaml is not formatted; format it with: kubexm fmt a.yaml\n")
    result = folder.run("fmt", "--diff", "a.yaml")
    assert result.exit_code == 1
    assert result.stdout.startswith("--- a.yaml\n+++ a.yaml (formatted)\n")
    assert path.read_text("utf-8") == UGLY


def test_standard_input_goes_to_standard_output(folder: Folder) -> None:
    folder.file("a.yaml", UGLY)
    result = folder.run("fmt", "-", stdin=UGLY.encode())
    assert result.exit_code == 0
    folder.run("fmt", "a.yaml")
    assert result.stdout == (folder.path / "a.yaml").read_text("utf-8")


def test_in_a_folder_only_specs_are_touched(folder: Folder) -> None:
    others = "b:   {c:   1}\n"
    folder.file("deep/a.yaml", UGLY)
    folder.file("values.yaml", others)
    folder.file(".hidden/b.yaml", UGLY)
    result = folder.run("fmt", ".")
    assert (result.exit_code, result.stdout) == (0, "formatted deep/a.yaml\n")
    assert (folder.path / "values.yaml").read_text("utf-8") == others
    assert (folder.path / ".hidden/b.yaml").read_text("utf-8") == UGLY


def test_what_cannot_be_read_is_told_with_its_place_and_the_rest_is_formatted(folder: Folder) -> None:
    (folder.path / "a.yaml").write_bytes(b"a: 1\nb: \xff\n")
    folder.file("b.yaml", "a: [\n")
    folder.file("c.yaml", UGLY)
    result = folder.run("fmt", "a.yaml", "b.yaml", "c.yaml")
    assert result.exit_code == 2
    assert "a.yaml:2:4" in result.stderr
    assert "error[not-utf8]" in result.stderr
    assert "error[yaml-syntax]" in result.stderr
    assert result.stdout == "formatted c.yaml\n"
    assert folder.run("fmt", "nowhere.yaml").exit_code == 2
    assert folder.run("fmt", "-", stdin=b"\xff").exit_code == 2
