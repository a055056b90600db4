import pytest

from equipoise.methods.code._reading import (
    fenced,
    read_program,
    syntax_error,
    with_header,
)


@pytest.mark.parametrize(
    ("text", "code", "fault"),
    [
        ("Text\n```python\nx = 1\n```\nmore", "x = 1\n", ""),
        ("```py\nx = 1\n```", "x = 1\n", ""),
        ("```\nx = 1\n```\n```python\nx = 2\n```", "x = 2\n", ""),
        ("```python\nx = 1\n```\n```python\nx = 2\n```", "x = 1\n", ""),
        ("```bash\npip install x\n```\n```\nx = 1\n```", "x = 1\n", ""),
        ("```java\nint x;\n```", "int x;\n", "language"),
        ("~~~python\nx = 1\n~~~", "x = 1\n", ""),
        ("````python\nx = '```'\n````", "x = '```'\n", ""),
        ("```python\nx = 1", "x = 1", "unclosed"),
        ("x = 1", "x = 1\n", "no_block"),
        ("  \n", "", "empty"),
        ("```python\n```", "", ""),
    ],
)
def test_which_block_counts(text, code, fault):
    found = read_program(text)
    assert (found.code, found.fault) == (code, fault)


def test_a_huge_answer_is_cut():
    found = read_program("```python\n" + "x = 1\n" * 100_000 + "```")
    assert found.fault == "long"
    assert len(found.code) == 100_000


def test_blocks_survive_what_they_hold():
    for code in ("x = 1", "x = '''```'''", "````\n```"):
        assert read_program(fenced(code)).code.rstrip("\n") == code


def test_what_cannot_be_compiled_is_told():
    assert syntax_error("x = 1") is None
    assert "line 2" in syntax_error("x = 1\ny = (")
    assert "null" in syntax_error("x\0")
    assert syntax_error("(" * 5000) is not None
    assert syntax_error("x = '\\d'") is None  # a warning is no error


def test_the_header_is_put_before_once():
    once = with_header("import math\n\n", "def f(): pass\n")
    assert once == "import math\ndef f(): pass\n"
    assert with_header("import math\n\n", once) == once
    assert with_header("", "x = 1") == "x = 1"
