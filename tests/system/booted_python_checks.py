"""The checks of python3-ingero and of its wheel, beside the daemon of the main package."""

from booted_checks import check, figure

WHEELS = "/usr/share/ingero"
# As a program does: what it tells is stored, and vLLM would find its plug-in. The entry point cannot be loaded without
# vLLM, whose base class it derives from.
PROGRAM = """
import importlib.metadata, sys
import ingero
with ingero.spans.phase("packaged"):
    pass
assert ingero.default_writer().flush(10), ingero.default_writer().stats()
stats = ingero.default_writer().stats()
[point] = importlib.metadata.entry_points(group="vllm.stat_logger_plugins")
print(stats["accepted"], stats["rejected"], point.value, "msgpack" in sys.modules, ingero.__file__)
"""


def tell_as_alice(host, python):
    """(spans that were stored, file of the package)"""
    said = host.system.run(python, "-c", PROGRAM, user="alice").stdout.split()
    figure(" ".join(said))
    assert said[:3] == ["1", "{}", "ingero.vllm:StatLogger"], said
    return said[4]


@check
def python_package_tells_the_daemon(host):
    host.system.run("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "/srv/python3-ingero.deb")
    place = tell_as_alice(host, "/usr/bin/python3")
    assert place == "/usr/lib/python3/dist-packages/ingero/__init__.py", place
    compiled = list(host.system.path("/usr/lib/python3/dist-packages/ingero/__pycache__").glob("writer.*.pyc"))
    assert compiled, "nothing was compiled when it was installed"


@check
def wheel_installs_into_a_fresh_venv_without_a_network(host):
    venv = host.home("alice") + "/venv"
    host.system.run("python3", "-m", "venv", venv, user="alice")
    host.system.run(f"{venv}/bin/pip", "install", "--quiet", "--no-index", "--find-links", WHEELS, "ingero", user="alice",
                    properties=("PrivateNetwork=yes",))
    place = tell_as_alice(host, f"{venv}/bin/python")
    assert place.startswith(f"{venv}/lib/"), place
    host.system.run("rm", "-r", venv)


@check
def python_package_is_removed_without_a_trace(host):
    host.system.run("apt-get", "purge", "--yes", "--quiet", "python3-ingero")
    left = host.system.run("find", "/usr/lib/python3", WHEELS, "-iname", "ingero-*", "-o", "-path", "*/dist-packages/ingero*")
    assert left.stdout == "", left.stdout
    assert host.state() == "active", "the daemon is another package's"
