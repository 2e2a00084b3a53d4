"""bash, zsh and fish as somebody types into them: what they offer for a line, and what they make of a Tab."""

import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import termios
import time

from tracked import ROOT

FOLDER = ROOT / "ctl" / "completion"
PROGRAMS = ("ingeroctl", "ingerod", "ingero-relay")
LIMIT_S = 20


class Terminal:
    """A shell on a terminal of its own. `path`: where programs are looked for first."""

    def __init__(self, command: list[str], folder: pathlib.Path, path: str, environment: dict[str, str]):
        own = {"PATH": f"{path}:{os.environ['PATH']}", "TERM": "vt100", "INPUTRC": "/dev/null", "PS1": "", "HOME": str(folder),
               "LC_ALL": "C.UTF-8", "ZDOTDIR": str(folder), **environment}
        self.pid, self.fd = pty.fork()
        if self.pid != 0:
            # Room for every list: a shell asks before it prints a longer one.
            termios.tcsetwinsize(self.fd, (200, 200))
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, own)

    def type(self, text: str, until: str) -> str:
        """What comes back, until it holds `until`, or for as long as one waits."""
        os.write(self.fd, text.encode())
        seen = ""
        deadline = time.monotonic() + LIMIT_S
        while until not in seen and time.monotonic() < deadline:
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    seen += os.read(self.fd, 4096).decode(errors="replace")
                except OSError:
                    break
        return seen

    def close(self) -> None:
        os.close(self.fd)
        os.waitpid(self.pid, 0)


class Shell:
    """`folder`: an empty one; `path`: where the programs are."""
    name = ""

    def __init__(self, folder: pathlib.Path, path: str, environment: dict[str, str] | None = None):
        self.folder = folder
        self.path = path
        self.environment = environment or {}

    def offers(self, lines: list[str]) -> list[set[str]]:
        """What is offered at the end of each line: whole words."""
        raise NotImplementedError

    def terminal(self) -> Terminal:
        """With the completions loaded."""
        raise NotImplementedError

    def words_after_tab(self, typed: str) -> list[str]:
        """The words of the line after Tab, as the shell itself reads them."""
        terminal = self.terminal()
        # To the line's begin, and what prints its words. Written so that an echo is not taken for it.
        seen = terminal.type(f"{typed}\t\x01printf '<%s>\\n' \x05 'e''nd'\n", "<end>")
        terminal.close()
        # A line is wrapped and drawn anew as it is typed; the words are printed after it.
        printed = seen[seen.rindex("<ingeroctl>"):] if "<ingeroctl>" in seen else ""
        return re.findall(r"^<(.*?)>\r*$", printed, re.MULTILINE)[:-1] or [seen]


class Bash(Shell):
    name = "bash"

    # A line to be completed, and then its words, with one more at the end.
    BATCH = r"""
set -u
for file in "$1"/*.bash; do source "$file"; done
while IFS= read -r line && IFS=$'\x1f' read -r -a words; do
    COMP_LINE=$line COMP_POINT=${#line} COMP_CWORD=$((${#words[@]} - 2))
    COMP_WORDS=("${words[@]:0:COMP_CWORD + 1}")
    COMPREPLY=()
    "_${words[0]}" "${words[0]}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    echo ==
    ((${#COMPREPLY[@]})) && printf '%s\n' "${COMPREPLY[@]}"
done
true
"""

    def offers(self, lines: list[str]) -> list[set[str]]:
        text = "".join(line + "\n" + "\x1f".join([*self.split(line), "end"]) + "\n" for line in lines)
        ran = subprocess.run(["bash", "--norc", "-c", self.BATCH, "bash", FOLDER], capture_output=True, text=True, check=False,
                             input=text, timeout=600, cwd=self.folder,
                             env={**os.environ, "PATH": f"{self.path}:{os.environ['PATH']}", **self.environment})
        if ran.stderr:
            raise AssertionError(ran.stderr)
        found = [set(part.splitlines()) for part in ran.stdout.split("==\n")[1:]]
        # Of "--option=value" bash is told the part after "=".
        return [{line.split()[-1].rpartition("=")[0] + "=" + one for one in offered} if re.search(r"=\S*$", line) else offered
                for line, offered in zip(lines, found, strict=True)]

    @staticmethod
    def split(line: str) -> list[str]:
        """As readline splits it."""
        words = re.findall(r"[=:]+|[^\s=:]+", line)
        return words + [""] if line[-1].isspace() else words

    def terminal(self) -> Terminal:
        terminal = Terminal(["bash", "--norc", "--noprofile", "-i"], self.folder, self.path, self.environment)
        terminal.type(f"source '{FOLDER}/ingeroctl.bash'; echo rea''dy\n", "ready")
        return terminal


class Zsh(Shell):
    name = "zsh"
    # What compadd would add goes to a file; its answer to its caller stays what it is.
    CAPTURE = """
compadd() {
    builtin compadd "$@"
    local result=$?
    [[ " ${@[1,(i)(-|--)]} " == *' -'[AOD]' '* ]] && return result
    local -a hits
    builtin compadd -A hits "$@"
    print -rl -- $hits >> $HOME/offered
    return result
}
"""

    def terminal(self) -> Terminal:
        functions = self.folder / "functions"
        functions.mkdir(exist_ok=True)
        for program in PROGRAMS:
            shutil.copy(FOLDER / f"{program}.zsh", functions / f"_{program}")
        terminal = Terminal(["zsh", "-f", "-i"], self.folder, self.path, self.environment)
        # Typed ahead, ^U is the line editor's too, and not the terminal's.
        terminal.type(f"stty kill undef; fpath=('{functions}' $fpath); autoload -Uz compinit && compinit -u -D; LISTMAX=9999; "
                      "unsetopt zle_bracketed_paste; bindkey -e; echo rea''dy\n", "ready")
        return terminal

    def offers(self, lines: list[str]) -> list[set[str]]:
        capture = self.folder / "capture.zsh"
        capture.write_text(self.CAPTURE, encoding="utf-8")
        offered = self.folder / "offered"
        terminal = self.terminal()
        terminal.type(f". '{capture}'; zstyle ':completion:*' list-prompt ''; echo load''ed\n", "loaded")
        found = []
        for line in lines:
            offered.write_text("", encoding="utf-8")
            # Nothing of it is run: the line is taken back.
            terminal.type(f"{line}\t\x15echo do''ne\n", "done\r\n")
            found.append(set(offered.read_text(encoding="utf-8").splitlines()) - {""})
        terminal.close()
        return found


class Fish(Shell):
    name = "fish"

    def offers(self, lines: list[str]) -> list[set[str]]:
        script = (f"for file in '{FOLDER}'/*.fish; source $file; end; "
                  "for line in $argv; echo ==; complete -C $line; end; true")
        ran = subprocess.run(["fish", "--no-config", "-c", script, *lines], capture_output=True, text=True, check=False,
                             timeout=600, stdin=subprocess.DEVNULL, cwd=self.folder,
                             env={**os.environ, "PATH": f"{self.path}:{os.environ['PATH']}", "HOME": str(self.folder),
                                  "TERM": "dumb", **self.environment})
        if ran.stderr:
            raise AssertionError(ran.stderr)
        return [{line.split("\t")[0] for line in part.splitlines()} for part in ran.stdout.split("==\n")[1:]]

    def terminal(self) -> Terminal:
        terminal = Terminal(["fish", "--no-config", "-i"], self.folder, self.path,
                            {"fish_greeting": "", **self.environment})
        terminal.type(f"function fish_prompt; end; source '{FOLDER}/ingeroctl.fish'; echo rea''dy\n", "ready")
        return terminal


SHELLS = {shell.name: shell for shell in (Bash, Zsh, Fish)}
