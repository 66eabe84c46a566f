"""Checks the exercises of a lesson, in the file as you have changed it.

Teaches: how far you are. The lesson runs, and each exercise is judged by what the lesson
then prints; those of lesson 3 are judged by what its functions return. When an exercise
is done, its solution in README.md follows, so that you can compare it with yours. For
some exercises there is nothing to run, only something to think about.

Run: python3 examples/lessons/check.py 3             the lesson in this folder
     python3 examples/lessons/check.py 3 mine.py     your copy of it, in this folder, too
The exit code is 0 if all that can be checked is done, and 1 if something is not yet.
"""

import argparse
import contextlib
import io
import os
import re
import runpy
import subprocess
import sys
import textwrap
from collections import namedtuple

HERE = os.path.dirname(os.path.abspath(__file__))
SECONDS = 60.0  # for a lesson to end, as an exercise may make it run for ever
# What the output of a lesson must show in this order, what it must not show, and what is
# said otherwise. The lines of stderr follow those of stdout, behind this line:
STDERR = "=== stderr ==="
Sign = namedtuple("Sign", "shown hidden hint")
SIGNS = {
    "1.1": Sign(
        f"{STDERR}.*debug",
        "<-- debug",
        'answer() does not print("debug") to sys.stderr, or prints it to stdout',
    ),
    "1.2": Sign(
        '("not JSON".*){3}',
        None,
        "no two more errors come back: does the message have a line break, and does the "
        "client read twice?",
    ),
    "2.1": Sign(
        '1999-12-31.*(-32022|"protocolVersion": "20)',
        None,
        "no request has the protocolVersion 1999-12-31",
    ),
    "2.2": Sign(
        '-32602, "message": "[^"]*clientCapabilities',
        None,
        "no modern request lacks its clientCapabilities",
    ),
    "4.1": Sign(
        "ToolError, for the model: price failed",
        "ToolError, for the model: price: ZeroDivisionError",
        "the client still reads what the bug said",
    ),
    "4.2": Sign(
        "resources/read: error -32002.*resources/read: error -32602",
        None,
        "the client does not read an unknown URI in both revisions",
    ),
    "5.1": Sign(
        r"\*\*\* Timeout: rest",
        "the tool is cancelled",
        "`rest` is still cancelled",
    ),
    "5.2": Sign("total_timeout", None, "no call ends by its total_timeout"),
    "6.1": Sign(
        "(a place is reserved.*){3}",
        None,
        "each era still reserves one place",
    ),
    "6.2": Sign(
        r"(InvalidParams|-32602)\W+(message\W+)?requestState: ",
        None,
        "no state was refused",
    ),
    "7.1": Sign(
        "resources/list_changed",
        None,
        "no change of the list of resources was reported",
    ),
    "8.1": Sign(
        "Origin: http://evil.example.*<-- 403",
        None,
        "no request with that Origin was refused",
    ),
    "8.2": Sign(
        r"Mcp-Method: tools/call.*\bTrue\b",
        None,
        "no modern tools/call shows that ctx.cancelled is True",
    ),
    "9.1": Sign('"code": -32602', None, "no process refuses the state of the other"),
    "9.2": Sign(
        r"\b404\b",
        None,
        "B does not refuse the session of A, or its status is not printed",
    ),
    "11.1": Sign(
        "(the user sees the tools.*){2}",
        "Server disconnected",
        'the entry "by hand" still fails',
    ),
    "11.2": Sign(
        r'"NOTES".*the model reads: \{"',
        None,
        "the entry that install.py has written has no NOTES, or its server finds nothing",
    ),
}
# Each has two exercises.
LESSONS = range(1, 12)


def check_types(lesson):
    """Judge exercise 3.1 by the functions of the lesson. Returns a hint, or None."""
    schema = {
        "required": [],
        "properties": {
            "days": {"type": "integer"},
            "price": {"type": "number"},
            "is_new": {"type": "boolean"},
        },
    }
    for arguments, is_wrong in (
        ({"days": True}, True),
        ({"price": False}, True),
        ({"days": 3, "price": 1.5, "is_new": True}, False),
        ({"price": 1}, False),
    ):
        errors = list(lesson["errors_in"](arguments, schema))
        if bool(errors) != is_wrong:
            return f"of {arguments}, errors_in() says {errors}"
    return None


def check_choices(lesson):
    """Judge exercise 3.2 by the functions of the lesson. Returns a hint, or None."""
    schema = lesson["schema_of"](lesson["forecast"])
    names = [
        name
        for name, member in schema["properties"].items()
        if member.get("enum") == ["C", "F"]
    ]
    if not names:
        return 'no member of the schema has the enum ["C", "F"]'
    for value, is_wrong in (("C", False), ("K", True)):
        arguments = {"city": "Oslo", names[0]: value}
        errors = list(lesson["errors_in"](arguments, schema))
        if bool(errors) != is_wrong:
            return f"of {arguments}, errors_in() says {errors}"
    return None


def check_functions(path):
    """Judge the exercises of lesson 3. Returns {exercise: a hint, or None}."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            lesson = runpy.run_path(path)
    except Exception as error:
        why = f"the lesson fails: {type(error).__name__}: {error}"
        return {"3.1": why, "3.2": why}
    hints = {}
    for exercise, check in (("3.1", check_types), ("3.2", check_choices)):
        try:
            hints[exercise] = check(lesson)
        except Exception as error:
            hints[exercise] = f"{type(error).__name__}: {error}"
    return hints


def judge(number, path):
    """Judge the exercises of a lesson. Returns {exercise: a hint, or None}."""
    if number == 3:
        return check_functions(path)
    return check_output(number, path)


def check_output(number, path):
    """Judge the exercises of another lesson. Returns {exercise: a hint, or None}."""
    command = [sys.executable, "-u", path]
    options = {"stdin": subprocess.DEVNULL, "timeout": SECONDS}
    try:
        ended = subprocess.run(command, capture_output=True, **options)
        output, errors = ended.stdout, ended.stderr
        if ended.returncode:
            text = errors.decode("utf-8", "replace")
            *_, why = ["", *text.splitlines()]
            # Of the traceback, the innermost line of the lesson itself.
            name = re.escape(os.path.basename(path))
            *_, line = ["?", *re.findall(rf'{name}", line (\d+)', text)]
            print(f"The lesson fails in line {line}: {why}")
    except subprocess.TimeoutExpired as late:
        print(f"The lesson did not end within {SECONDS:.0f} seconds.")
        output, errors = late.stdout or b"", late.stderr or b""
    text = b"\n".join([output, STDERR.encode(), errors]).decode("utf-8", "replace")
    # The lessons break their lines to fit on a screen.
    text = " ".join(text.split())
    return {
        exercise: None if is_shown(sign, text) else sign.hint
        for exercise, sign in SIGNS.items()
        if exercise.partition(".")[0] == str(number)
    }


def is_shown(sign, text):
    is_hidden = sign.hidden is None or not re.search(sign.hidden, text)
    return is_hidden and bool(re.search(sign.shown, text))


def solution_of(exercise):
    """Return the solution of an exercise in README.md."""
    with open(os.path.join(HERE, "README.md"), encoding="utf-8") as file:
        text = file.read()
    pattern = rf"\*\*{re.escape(exercise)}\*\* (.*?)(?=\s\*\*\d+\.\d\*\*|\n\n|\Z)"
    return " ".join(re.search(pattern, text, re.DOTALL)[1].split())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"check: {why}; see --help")
    parser.add_argument("lesson", type=int, choices=LESSONS, metavar="LESSON")
    parser.add_argument("file", nargs="?", help="your copy of the lesson")
    options = parser.parse_args()
    path = options.file
    if path is not None and not os.path.isfile(path):
        parser.error(f"{path}: no such file")
    if path is None:
        (name,) = (
            name
            for name in os.listdir(HERE)
            if name.startswith(f"{options.lesson:02}_")
        )
        path = os.path.join(HERE, name)
    hints = judge(options.lesson, path)
    for exercise in (f"{options.lesson}.1", f"{options.lesson}.2"):
        if exercise not in hints:
            text = "think about it, and then compare with README.md"
        elif hints[exercise] is not None:
            text = f"not yet: {hints[exercise]}"
        else:
            text = f"done. Compare: {solution_of(exercise)}"
        print(textwrap.fill(f"{exercise} {text}", 88, subsequent_indent="    "))
    return int(any(hint is not None for hint in hints.values()))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
