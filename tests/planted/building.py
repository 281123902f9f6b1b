# SPDX-License-Identifier: Apache-2.0
"""Compiles one file of the emulated GPU's module with a fault in it, by the commands of the build, and links the module anew: into
a folder that also has links to all else that is in the build's, so that LD_LIBRARY_PATH takes a program to either."""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

MODULE = "libdp-trainer-cuda.so"
# The folders of the build with the emulated GPU, and with one that watches what kernels do with memory.
PLAIN, CHECKED = pathlib.Path("lib/emulated_cuda"), pathlib.Path("lib/emulated_cuda_checked")


class DoesNotBuild(Exception):
    pass


def targets(folder):
    """What has to be built: the programs that test, and the modules."""
    rules = (folder / "build.ninja").read_text()
    names = [*(f"bin/{name}" for name in ("trainer-tests", "trainer", "dpctl", "dp-rendezvousd", "cuda-emulator-tests")),
             *(f"{variant}/{MODULE}" for variant in (PLAIN, CHECKED))]
    return [name for name in names if f"\nbuild {name}" in rules]


def tree_of(folder):
    """The checkout of a build folder, by the name that CMake knows, which its commands have: a symlink may be part of it. None if
    the folder does not say."""
    cache = folder / "CMakeCache.txt"
    words = re.search(r"^CMAKE_HOME_DIRECTORY:\w+=(.+)$", cache.read_text(), re.MULTILINE) if cache.exists() else None
    return pathlib.Path(words[1]) if words else None


class Build:
    """The build folder: what it compiles and links, and ctest's tests. `tree`: tree_of(folder)."""

    def __init__(self, tree, folder):
        self.tree, self.folder = tree, folder
        self.entries = json.loads((folder / "compile_commands.json").read_text())
        self.links = {}
        self.compiler_cache = [shutil.which("ccache")] if shutil.which("ccache") else []

    def entry_of(self, unit, variant):
        """How the unit is compiled, the library that it goes into, and the name by which that is looked for. The library is the
        module of that folder, or the one that the module stands on, where CMake may compile several files as one."""
        source = str(self.tree / unit)
        module = self.folder / variant / MODULE
        objects = set(self.link_command(module))
        for entry in self.entries:
            if entry["file"] == source and object_of(shlex.split(entry["command"])) in objects:
                return entry, module, MODULE
        for entry in self.entries:
            file = pathlib.Path(entry["file"])
            if "/dp_nccl.dir/" in entry["command"] and file.suffix == ".cxx" and f'"{source}"' in file.read_text():
                return entry, pathlib.Path(os.path.realpath(self.folder / "lib/libdp-nccl.so.0")), "libdp-nccl.so.0"
        raise DoesNotBuild(f"the build has no command for {unit}")

    def has(self, variant):
        return (self.folder / variant / MODULE).exists()

    def link_command(self, library):
        if library not in self.links:
            name = os.path.relpath(library, self.folder)
            said = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", "-s", name], check=True, stdout=subprocess.PIPE,
                                  text=True)
            words = shlex.split(said.stdout.splitlines()[-1])
            self.links[library] = [word for word in words if word not in (":", "&&")]
        return list(self.links[library])

    def tests(self):
        """ctest's tests by their names."""
        said = subprocess.run(["ctest", "--show-only=json-v1"], cwd=self.folder, check=True, capture_output=True, text=True)
        return {test["name"]: test for test in json.loads(said.stdout)["tests"] if "command" in test}


def object_of(command):
    return command[command.index("-o") + 1]


def libraries_beside(build, variant, folder, but=()):
    """Makes `folder` what that folder of the build is, in front of the plain one, without these names."""
    folder.mkdir(parents=True)
    beside = build.folder / "lib"
    for place in [*(build.folder / variant).iterdir(), *(build.folder / PLAIN).iterdir(), *beside.glob("libdp.so.*"),
                  *beside.glob("libdp-nccl.so.*")]:
        if place.name not in but and not (folder / place.name).exists():
            (folder / place.name).symlink_to(place)


def module_with(build, variant, fault, source, room, run):
    """Builds the module with that text in the place of the fault's file, below `room`. run(command, cwd) → (exit code, output).
    Returns the folder for LD_LIBRARY_PATH."""
    entry, library, name = build.entry_of(fault.unit, variant)
    place = room / fault.file
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(source)
    command = shlex.split(entry["command"])
    old_object = object_of(command)
    command[command.index("-o") + 1] = "mutant.o"
    if entry["file"].endswith(".cxx"):
        (room / "unity.cxx").write_text(pathlib.Path(entry["file"]).read_text().replace(str(build.tree / fault.file), fault.file))
        command[command.index("-c") + 1] = "unity.cxx"
    elif fault.unit == fault.file:
        command[command.index("-c") + 1] = fault.file
    # Relative paths, so that a compiler cache knows the file again. No warnings: a fault may leave a variable unused.
    command[1:1] = ["-iquote", "."]
    command += [f"-I{(build.tree / fault.unit).parent}", "-w"]
    code, output = run([*build.compiler_cache, *command], room)
    if code != 0:
        errors = [line for line in output.splitlines() if "error" in line] or output.splitlines() or ["no output"]
        raise DoesNotBuild(f"does not compile: {errors[0]}")
    folder = room / "lib"
    libraries_beside(build, variant, folder, {name})
    link = build.link_command(library)
    link[link.index("-o") + 1] = str(folder / name)
    objects = [word for word in link if word == old_object]
    if len(objects) != 1:
        raise DoesNotBuild(f"{old_object} is not linked once into {library}")
    # First: of functions that several files have, the linker takes this one's.
    link.remove(old_object)
    link.insert(1, str(room / "mutant.o"))
    code, output = run(link, build.folder)
    if code != 0:
        raise DoesNotBuild(f"does not link: {(output.splitlines() or ['no output'])[-1]}")
    return folder
