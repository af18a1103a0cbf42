"""The examples of docs/python.md do what the page says."""

import doctest
import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "python.md"


def test_the_examples_of_the_page(cluster, client, monkeypatch):
    for name in ("fsspec", "numpy", "pandas", "pyarrow", "zarr"):
        pytest.importorskip(name, reason=f"skipped: needs {name}")
    monkeypatch.setenv("WEIR_CLUSTER", cluster)
    blocks = re.findall(r"^```pycon\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 6
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, PAGE.name, str(PAGE), 0)
    said = []
    runner = doctest.DocTestRunner()
    results = runner.run(examples, out=said.append)
    assert results.failed == 0, "".join(said)
    assert results.attempted >= 30
