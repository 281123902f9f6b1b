// SPDX-License-Identifier: Apache-2.0
#include "doctor/libraries.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/fd.hpp"
#include "base/text.hpp"
#include "doctor/apart.hpp"
#include "doctor/gpus.hpp"

namespace dp::doctor {
namespace {

constexpr std::chrono::seconds kLoadPatience{10};

// MAJOR * 10000 + MINOR * 100 + PATCH.
std::string version_of(long number) {
    return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

// NCCL before 2.9 and cuDNN before 9 counted MAJOR * 1000 + MINOR * 100 + PATCH.
std::string version_of_either(long number) {
    return number < 10000 ? fmt::format("{}.{}.{}", number / 1000, number / 100 % 10, number % 100)
                          : version_of(number);
}

std::string nccl_version(void* library) {
    int number = 0;
    const auto get = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
    return get && get(&number) == 0 ? version_of_either(number) : "";
}

std::string cudnn_version(void* library) {
    const auto get = reinterpret_cast<size_t (*)()>(dlsym(library, "cudnnGetVersion"));
    const auto cuda = reinterpret_cast<size_t (*)()>(dlsym(library, "cudnnGetCudartVersion"));
    return get && cuda ? fmt::format("{} {}", version_of_either(static_cast<long>(get())), cuda()) : "";
}

std::string cuda_runtime_version(void* library) {
    int number = 0;
    const auto get = reinterpret_cast<int (*)(int*)>(dlsym(library, "cudaRuntimeGetVersion"));
    return get && get(&number) == 0 ? std::to_string(number) : "";
}

std::string mpi_version(void* library) {
    std::array<char, 8192> text{};  // MPI_MAX_LIBRARY_VERSION_STRING of all is less
    int size = 0;
    const auto get = reinterpret_cast<int (*)(char*, int*)>(dlsym(library, "MPI_Get_library_version"));
    if (!get || get(text.data(), &size) != 0) return "";
    const std::string_view all(text.data());
    return printable(all.substr(0, all.find_first_of("\n,")), 60);
}

struct Known {
    const char* name;
    std::string_view soname;                // how it begins
    std::vector<const char*> newest_first;  // where no program says which
    std::string (*version)(void* library);
};

const std::vector<Known>& known_libraries() {
    static const std::vector<Known> kKnown = {
        {"CUDA runtime",
         "libcudart.so",
         {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"},
         cuda_runtime_version},
        {"NCCL", "libnccl.so", {"libnccl.so.2"}, nccl_version},
        {"cuDNN", "libcudnn.so", {"libcudnn.so.9", "libcudnn.so.8"}, cudnn_version},
        {"MPI", "libmpi", {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12"}, mpi_version},
    };
    return kKnown;
}

// "VERSION\nPATH"; "" if it cannot be loaded. Loading runs the library's own code: in a process of its own.
std::string version_in_file(const Known& known, const std::string& file) {
    const auto said = apart(
        [&] {
            void* const library = dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
            if (!library) return std::string();
            std::string path = file;
            for (const char* function :
                 {"cudaRuntimeGetVersion", "ncclGetVersion", "cudnnGetVersion", "MPI_Init"}) {
                Dl_info info{};
                if (void* const at = dlsym(library, function); at && dladdr(at, &info) && info.dli_fname)
                    path = info.dli_fname;
            }
            return known.version(library) + "\n" + path;
        },
        kLoadPatience);
    return said ? *said : "";
}

void note_version(LibraryFacts& facts, const Known& known, std::string_view said) {
    const size_t end = said.find('\n');
    std::string version(said.substr(0, end));
    const std::string_view path = end == said.npos ? "" : said.substr(end + 1);
    if (known.version == cuda_runtime_version) {
        facts.cuda_runtime = parse_number<int>(version).value_or(0);
        version = cuda_version(facts.cuda_runtime);
    } else if (known.version == cudnn_version) {
        const size_t space = version.find(' ');
        facts.cudnn_cuda = space == version.npos
                               ? 0
                               : parse_number<int>(std::string_view(version).substr(space + 1)).value_or(0);
        version.resize(std::min(space, version.size()));
    }
    facts.found[known.name] = fmt::format(
        "{}, {}", version.empty() ? "version not known" : printable(version, 80), printable(path));
}

std::string path_of_program(const std::string& name) {
    if (name.find('/') != name.npos) return name;
    const char* const path = std::getenv("PATH");
    for (const auto folder : split(path ? path : "/usr/bin:/bin", ':')) {
        std::string file = std::string(folder.empty() ? "." : folder) + "/" + name;
        if (access(file.c_str(), X_OK) == 0 && !std::filesystem::is_directory(file)) return file;
    }
    return "";
}

std::string first_bytes(const std::string& path) {
    const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::array<char, 256> start{};
    const ssize_t size = file ? read(file.get(), start.data(), start.size()) : 0;
    return {start.data(), static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

// Why the kernel would not run a file that is no script; "" if it would.
std::string problem_of_binary(std::string_view start) {
    if (start.size() < sizeof(Elf64_Ehdr) || !start.starts_with(ELFMAG))
        return "is neither a program nor a script (its first line does not begin with #!)";
    const std::string own = first_bytes("/proc/self/exe");
    Elf64_Ehdr theirs{}, ours{};
    std::memcpy(&theirs, start.data(), sizeof theirs);
    if (own.size() >= sizeof ours) std::memcpy(&ours, own.data(), sizeof ours);
    if (theirs.e_ident[EI_CLASS] != ours.e_ident[EI_CLASS] || theirs.e_machine != ours.e_machine)
        return "is built for another kind of processor";
    return "";
}

// Of "/usr/bin/env python3" the python3, else the first word.
std::string program_of_interpreter(std::string_view line) {
    const auto words = split(line, ' ');
    const bool is_env = words.size() > 1 && words[0].ends_with("/env");
    return std::string(words[is_env ? 1 : 0]);
}

void read_program(LibraryFacts& facts, const std::string& name) {
    facts.program = path_of_program(name);
    std::error_code error;
    if (facts.program.empty() || !std::filesystem::exists(facts.program, error)) {
        facts.problem = facts.program.empty() ? "is not in PATH" : "does not exist";
        facts.program = name;
        return;
    }
    if (std::filesystem::is_directory(facts.program, error) || access(facts.program.c_str(), X_OK) != 0) {
        facts.problem = "is not executable for this user";
        return;
    }
    const std::string start = first_bytes(facts.program);
    if (start.starts_with("#!")) {
        std::string_view line = std::string_view(start).substr(2, start.find('\n') - 2);
        line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
        facts.interpreter = line.empty() ? "" : program_of_interpreter(line);
        if (facts.interpreter.empty() || path_of_program(facts.interpreter).empty() ||
            access(path_of_program(facts.interpreter).c_str(), X_OK) != 0)
            facts.problem = "is a script of " + printable(facts.interpreter, 80) + ", which is not here" +
                            (line.ends_with('\r') ? " (its lines end as on Windows; dos2unix)" : "");
        return;
    }
    facts.problem = problem_of_binary(start);
    if (!facts.problem.empty()) return;
    const auto said = output_of({"ldd", facts.program}, kLoadPatience);
    if (!said) return;
    for (const auto& [soname, path] : parse_ldd(said->text)) {
        if (path.empty()) facts.missing.push_back(printable(soname, 80));
        for (const Known& known : known_libraries())
            if (!path.empty() && soname.starts_with(known.soname) && !facts.found.contains(known.name))
                note_version(facts, known, version_in_file(known, path));
    }
}

Finding check_program(const LibraryFacts& facts) {
    const std::string program = printable(facts.program, 120);
    if (!facts.problem.empty())
        return fault("program", program + " " + facts.problem, "no rank of it can start here",
                     "a path that every node has, and chmod +x");
    if (!facts.missing.empty())
        return fault("program",
                     fmt::format("{} needs {}, not found here", program, join(facts.missing, ", ")),
                     "it ends before its first line: \"error while loading shared libraries\"",
                     "module load what it was built with, or its folder in LD_LIBRARY_PATH");
    if (!facts.interpreter.empty())
        return ok("program", program + ", a script run by " + printable(facts.interpreter, 80));
    return ok("program", program + ", all its libraries are here");
}

}  // namespace

std::map<std::string, std::string> parse_ldd(std::string_view text) {
    std::map<std::string, std::string> found;
    for (auto line : split(text, '\n')) {
        line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
        // "./train: /lib/libc.so.6: version `GLIBC_2.38' not found (required by ./train)"
        if (const size_t version = line.find(": version `"), end = line.find("' not found", version);
            end != line.npos)
            found.emplace(line.substr(version + 11, end - version - 11), "");
        const size_t arrow = line.find(" => ");
        if (arrow == line.npos) continue;
        const auto path = line.substr(arrow + 4);
        found.emplace(line.substr(0, arrow),
                      path.starts_with("not found") ? "" : path.substr(0, path.rfind(" (")));
    }
    return found;
}

LibraryFacts read_libraries(const std::string& program) {
    LibraryFacts facts;
    if (!program.empty()) read_program(facts, program);
    if (!program.empty() && facts.interpreter.empty()) return facts;
    for (const Known& known : known_libraries())
        for (const char* name : known.newest_first)
            if (const std::string said = version_in_file(known, name); !said.empty()) {
                note_version(facts, known, said);
                break;
            }
    return facts;
}

Findings check_libraries(const LibraryFacts& facts, int driver_cuda) {
    Findings found;
    if (!facts.program.empty()) found.push_back(check_program(facts));
    for (const auto& [name, seen] : facts.found) {
        const bool is_runtime = name == "CUDA runtime", is_cudnn = name == "cuDNN";
        if (is_runtime && driver_cuda > 0 && facts.cuda_runtime / 1000 > driver_cuda / 1000)
            // Without a program nobody may use it.
            found.push_back((facts.program.empty() ? warning : fault)(
                name, fmt::format("{}; the driver runs CUDA {} and older", seen, cuda_version(driver_cuda)),
                "its first call fails: \"CUDA driver version is insufficient for CUDA runtime version\" (35)",
                fmt::format(
                    "a driver for CUDA {}, or NVIDIA's cuda-compat package, or a program built with CUDA {}",
                    cuda_version(facts.cuda_runtime), driver_cuda / 1000)));
        else if (is_cudnn && facts.cudnn_cuda > 0 && facts.cuda_runtime > 0 &&
                 facts.cudnn_cuda / 1000 != facts.cuda_runtime / 1000)
            found.push_back(
                warning(name,
                        fmt::format("{}, built with CUDA {}; the CUDA runtime is {}", seen,
                                    cuda_version(facts.cudnn_cuda), cuda_version(facts.cuda_runtime)),
                        "cuDNN loads a second CUDA runtime, or none at all",
                        "cuDNN's package for the CUDA that the program uses"));
        else
            found.push_back(ok(name, seen));
    }
    return found;
}

}  // namespace dp::doctor
