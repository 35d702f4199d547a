"""A file of requests is read as it is, and its errors name line, column and value."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.sim.traffic import csv_file
from wva.sim.traffic.csv_file import RequestsFileError, read_csv, write_csv
from wva.sim.traffic.traces import mooncake_tool


def write(folder, text):
    """Return a file with this text."""
    path = folder / "requests.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_columns_of_a_user(tmp_path):
    """Names may have any case and order. Unknown columns are left out, rows are sorted, and groups get numbers."""
    path = write(
        tmp_path,
        "user, Output_Tokens,seconds,prompt_tokens,group,prefix_tokens\n"
        "ann,20,7.5,300,chat,256\n"
        "bob,10,0.25,100,,\n"
        "\n"
        "ann,30,7.5,400,tool,128\n"
        "ann,40,9,500,chat,300\n",
    )
    traffic = read_csv(path, duration_seconds=60.0)
    assert traffic.duration_seconds == 60.0
    assert traffic.arrival_seconds.tolist() == [0.25, 7.5, 7.5, 9.0]
    assert traffic.prompt_tokens.tolist() == [100, 300, 400, 500]
    assert traffic.output_tokens.tolist() == [10, 20, 30, 40]
    assert traffic.group.tolist() == [-1, 0, 1, 0]
    assert traffic.prefix_tokens.tolist() == traffic.shared_tokens.tolist() == [0, 256, 128, 300]
    assert np.all((traffic.draw >= 0) & (traffic.draw < 1))
    assert read_csv(path).duration_seconds == 9.0


@pytest.mark.parametrize(
    "times",
    [
        ("2023-11-16 18:15:46.6805900", "2023-11-16 18:15:50.9951690"),
        ("2024-05-10 00:00:00.009930+00:00", "2024-05-10 02:00:04.324509+02:00"),
        ("1700158546.680590", "1700158550.995169"),
    ],
)
def test_the_columns_of_azure(tmp_path, times):
    """Times may be written with or without a zone, or as Unix seconds. The first request is at 0."""
    rows = "".join(f"{time},374,44\r\n" for time in times)
    traffic = read_csv(write(tmp_path, "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\r\n" + rows))
    assert traffic.arrival_seconds == pytest.approx([0.0, 4.314579], abs=1e-5)
    assert traffic.prompt_tokens.tolist() == [374, 374]
    assert traffic.output_tokens.tolist() == [44, 44]
    assert traffic.group.tolist() == [-1, -1]


def test_what_was_written_is_read_again(tmp_path):
    """A file that was written is read again bit for bit. Only the numbers of groups are new."""
    traffic = mooncake_tool(1, duration_seconds=120.0)
    path = tmp_path / "out.csv"
    write_csv(traffic, path)
    again = read_csv(path, duration_seconds=120.0, seed=1)
    for column in ("arrival_seconds", "prompt_tokens", "output_tokens", "prefix_tokens", "shared_tokens", "draw"):
        assert np.array_equal(getattr(again, column), getattr(traffic, column)), column
    assert len(set(zip(traffic.group.tolist(), again.group.tolist(), strict=True))) == len(set(traffic.group.tolist()))


HEAD = "seconds,prompt_tokens,output_tokens\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + "0,1,1\n1,x,1\n", r"line 3, column prompt_tokens: 'x': expected a whole number from 1 to 10000000"),
        (HEAD + "0,0,1\n", "line 2, column prompt_tokens: '0': expected a whole number from 1"),
        (HEAD + "0,5,0\n", "line 2, column output_tokens: '0'"),
        (HEAD + "0,5,1_0\n", "line 2, column output_tokens: '1_0'"),
        (HEAD + f"0,5,{'9' * 100}\n", r"column output_tokens: '9{40}\.\.\.'"),
        (HEAD + "-1,5,5\n", "line 2, column seconds: '-1': expected 0 to 31622400 seconds"),
        (HEAD + "nan,5,5\n", "line 2, column seconds: 'nan'"),
        (HEAD + "soon,5,5\n", "line 2, column seconds: 'soon'"),
        (HEAD + "1,5\n", "line 2: '1,5': expected 3 values"),
        (HEAD, "has no request"),
        ("", "line 1: '': expected a column seconds or timestamp"),
        ("seconds,prompt_tokens\n0,1\n", "expected a column output_tokens or generatedtokens"),
        ("seconds,timestamp,prompt_tokens,output_tokens\n", "'seconds,timestamp': expected one column"),
        ("seconds,prompt_tokens,output_tokens,group\n", "expected the columns group and prefix_tokens together"),
        ("timestamp,prompt_tokens,output_tokens\nyesterday,1,1\n", "column timestamp: 'yesterday': expected a time"),
        ("timestamp,prompt_tokens,output_tokens\n9999999999999,1,1\n1,1,1\n", "expected at most 31622400"),
        (
            "seconds,prompt_tokens,output_tokens,group,prefix_tokens\n0,100,1,a,101\n",
            "line 2, column prefix_tokens: '101': expected a whole number from 0 to 100",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, text, words):
    """The error has line, column and value of the first mistake."""
    with pytest.raises(RequestsFileError, match=words):
        read_csv(write(tmp_path, text))


def test_files_that_are_too_large_or_not_there_are_refused(tmp_path, monkeypatch):
    """A file is refused by its size before a line is read, or by its number of requests."""
    path = write(tmp_path, HEAD + "0,1,1\n" * 5)
    with pytest.raises(RequestsFileError, match=r"none after the duration, 0\.5 s"):
        read_csv(write(tmp_path, HEAD + "0.6,1,1\n"), duration_seconds=0.5)
    with pytest.raises(RequestsFileError, match="cannot be read"):
        read_csv(tmp_path / "missing.csv")
    path = write(tmp_path, HEAD + "0,1,1\n" * 5)
    monkeypatch.setattr(csv_file, "MAXIMUM_ROWS", 4)
    with pytest.raises(RequestsFileError, match="more than 4 requests"):
        read_csv(path)
    monkeypatch.setattr(csv_file, "MAXIMUM_BYTES", 10)
    with pytest.raises(RequestsFileError, match="expected at most 10"):
        read_csv(path)
    (tmp_path / "bytes.csv").write_bytes(b"\xff")
    with pytest.raises(RequestsFileError, match="cannot be read"):
        read_csv(tmp_path / "bytes.csv")


@given(text=st.text(alphabet="0123456789,.\n\"'-e seconds_promtkuagfix", max_size=80), named=st.booleans())
def test_any_text_is_read_or_refused(tmp_path_factory, text, named):
    """Any text is either read or refused with the error for wrong files."""
    path = write(tmp_path_factory.mktemp("any"), (HEAD if named else "") + text)
    try:
        traffic = read_csv(path)
    except RequestsFileError:
        return
    assert traffic.count > 0
    assert np.all(np.diff(traffic.arrival_seconds) >= 0)
