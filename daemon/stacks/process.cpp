// SPDX-License-Identifier: Apache-2.0
#include "stacks/process.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <gelf.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>

#include "base/errno_text.hpp"
#include "base/text.hpp"
#include "common/read_file.hpp"

namespace dp::stacks {
namespace {

std::string proc(pid_t pid, std::string_view file) {
    return "/proc/" + std::to_string(pid) + "/" + std::string(file);
}

std::optional<uint64_t> parse_hex(std::string_view text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
    return value;
}

// The next word, and what follows it.
std::string_view next_word(std::string_view& text) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(text.find_first_not_of(' ', end), text.size()));
    return word;
}

// Where the first loadable part of the file lies, from where its symbols' addresses count.
uint64_t first_address(Elf* elf) {
    size_t count = 0;
    if (elf_getphdrnum(elf, &count) != 0) return 0;
    for (size_t i = 0; i < count; ++i) {
        GElf_Phdr part;
        if (gelf_getphdr(elf, static_cast<int>(i), &part) && part.p_type == PT_LOAD)
            return part.p_vaddr - part.p_offset;
    }
    return 0;
}

constexpr std::string_view kDeleted = " (deleted)";

std::string why_unreadable(pid_t pid, int error) {
    const std::string process = "process " + std::to_string(pid);
    struct stat owner {};
    if (stat(proc(pid, "").c_str(), &owner) != 0) return "there is no " + process;
    if (error == ENOENT || error == ESRCH)
        return process + " has no memory of its own: it is ending, or the kernel's";
    if (error != EACCES && error != EPERM)
        return process + "'s memory cannot be opened: " + errno_text(error);
    if (geteuid() != 0 && owner.st_uid != geteuid())
        return process + " may not be read: it is another user's, or has changed its user";
    const std::string scope = read_file("/proc/sys/kernel/yama/ptrace_scope").substr(0, 1);
    if (scope == "1")
        return process +
               " may not be read: kernel.yama.ptrace_scope=1 lets only its ancestors do that, and "
               "of a rank its node's daemon (dpctl stacks --rank)";
    if (scope == "2" || scope == "3")
        return process + " may not be read: kernel.yama.ptrace_scope=" + scope + " forbids it";
    return process + " may not be read: the kernel or the process itself (PR_SET_DUMPABLE) forbids it";
}

// A regular file: to open anything else may wait, or do something.
Fd open_regular(const std::string& path) {
    const Fd found(open(path.c_str(), O_PATH | O_CLOEXEC));
    struct stat what {};
    if (!found || fstat(found.get(), &what) != 0) return Fd();
    if (!S_ISREG(what.st_mode)) {
        errno = EINVAL;
        return Fd();
    }
    return Fd(open(("/proc/self/fd/" + std::to_string(found.get())).c_str(), O_RDONLY | O_CLOEXEC));
}

bool is_32_bit(const Fd& program) {
    std::array<char, EI_NIDENT> start{};
    return program && pread(program.get(), start.data(), start.size(), 0) == EI_NIDENT &&
           start[EI_CLASS] == ELFCLASS32;
}

}  // namespace

std::vector<Mapping> parse_maps(std::string_view text) {
    std::vector<Mapping> mappings;
    for (std::string_view line : split(text, '\n')) {
        const std::string_view range = next_word(line);
        const size_t dash = std::min(range.find('-'), range.size());
        const auto begin = parse_hex(range.substr(0, dash));
        const auto end = parse_hex(range.substr(std::min(dash + 1, range.size())));
        const bool is_executable = next_word(line).find('x') != std::string_view::npos;
        const auto offset = parse_hex(next_word(line));
        next_word(line);  // the device
        next_word(line);  // the file's number
        if (begin && end && offset && (line.starts_with('/') || line == "[vdso]"))
            mappings.push_back({*begin, *end, *offset, is_executable, std::string(range), std::string(line)});
    }
    return mappings;
}

std::vector<Symbol> find_symbols(int file, std::initializer_list<std::string_view> names) {
    elf_version(EV_CURRENT);
    // Not mapped: the file may be cut meanwhile.
    const std::unique_ptr<Elf, int (*)(Elf*)> elf(elf_begin(file, ELF_C_READ, nullptr), elf_end);
    if (!elf || gelf_getclass(elf.get()) != ELFCLASS64) return {};
    const uint64_t base = first_address(elf.get());
    std::vector<Symbol> found;
    const auto is_new = [&](std::string_view name) {
        return std::none_of(found.begin(), found.end(), [&](const Symbol& one) { return one.name == name; });
    };
    for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf.get(), section));) {
        GElf_Shdr header;
        if (!gelf_getshdr(section, &header) || (header.sh_type != SHT_DYNSYM && header.sh_type != SHT_SYMTAB))
            continue;
        Elf_Data* const data = elf_getdata(section, nullptr);
        GElf_Sym symbol;
        for (int i = 0; data && found.size() < names.size() && gelf_getsym(data, i, &symbol); ++i) {
            const char* const name = elf_strptr(elf.get(), header.sh_link, symbol.st_name);
            if (symbol.st_shndx != SHN_UNDEF && name &&
                std::find(names.begin(), names.end(), name) != names.end() && is_new(name))
                found.push_back({name, symbol.st_value - base});
        }
    }
    return found;
}

Try<Process> Process::open(pid_t pid) {
    Process process;
    process.pid_ = pid;
    process.folder_ = proc(pid, "");
    // Where the main thread has ended before the others, those still have it all.
    if (read_file(process.folder_ + "maps").empty())
        for (const auto& [there, here] : process.threads())
            if (const std::string folder = proc(pid, "task/" + std::to_string(here) + "/");
                !read_file(folder + "maps").empty())
                process.folder_ = folder;
    process.memory_.reset(::open((process.folder_ + "mem").c_str(), O_RDONLY | O_CLOEXEC));
    if (!process.memory_) return fail(why_unreadable(pid, errno));
    process.mappings_ = parse_maps(read_file(process.folder_ + "maps"));
    if (process.mappings_.empty()) return fail(why_unreadable(pid, ESRCH));
    std::array<char, PATH_MAX> path;
    const ssize_t size = readlink((process.folder_ + "exe").c_str(), path.data(), path.size());
    process.program_.assign(path.data(), size > 0 ? static_cast<size_t>(size) : 0);
    if (is_32_bit(open_regular(process.folder_ + "exe")))
        return fail("process " + std::to_string(pid) + " is a 32-bit program, whose calls are not read here");
    return process;
}

std::optional<pid_t> innermost_number(std::string_view status) {
    constexpr std::string_view kKey = "\nNSpid:\t";
    const size_t at = status.find(kKey);
    if (at == std::string_view::npos) return std::nullopt;
    status.remove_prefix(at + kKey.size());
    status = status.substr(0, status.find('\n'));
    return parse_number<pid_t>(status.substr(status.rfind('\t') + 1));
}

std::map<pid_t, pid_t> Process::threads() const {
    constexpr size_t kMost = 10'000;
    std::map<pid_t, pid_t> threads;
    const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir(proc(pid_, "task").c_str()), closedir);
    while (const dirent* entry = tasks && threads.size() < kMost ? readdir(tasks.get()) : nullptr) {
        const auto here = parse_number<pid_t>(entry->d_name);
        if (!here) continue;
        const auto there =
            innermost_number(read_file(proc(pid_, "task/" + std::to_string(*here) + "/status")));
        threads[there.value_or(*here)] = *here;
    }
    return threads;
}

bool Process::read(uint64_t address, void* to, size_t size) const {
    return read_some(address, to, size) == size;
}

size_t Process::read_some(uint64_t address, void* to, size_t size) const {
    constexpr uint64_t kLeast = 64;  // a read of one byte takes its time, too
    const uint64_t cost = std::max<uint64_t>(size, kLeast);
    if (cost > left_to_read_) return 0;
    left_to_read_ -= cost;
    return static_cast<size_t>(
        std::max<ssize_t>(0, pread(memory_.get(), to, size, static_cast<off_t>(address))));
}

Fd Process::open_file(const Mapping& mapping) const {
    if (mapping.path == program_) return open_regular(folder_ + "exe");
    if (!mapping.path.ends_with(kDeleted)) return open_regular(folder_ + "root" + mapping.path);
    // Replaced meanwhile. (The kernel lets only root do that; the program itself can be opened by its user, too.)
    return open_regular(folder_ + "map_files/" + mapping.range);
}

Try<std::vector<Symbol>> Process::symbols(const std::string& path,
                                          std::initializer_list<std::string_view> names) const {
    const auto first = std::find_if(mappings_.begin(), mappings_.end(),
                                    [&](const Mapping& one) { return one.path == path; });
    if (first == mappings_.end()) return fail(printable(path) + " is not mapped");
    const Fd file = open_file(*first);
    if (!file && path.ends_with(kDeleted))
        return fail(printable(path.substr(0, path.size() - kDeleted.size())) +
                    " has been replaced since the program started, and only root can still read the old one");
    if (!file) return fail(printable(path) + " cannot be read: " + errno_text(errno));
    auto found = find_symbols(file.get(), names);
    for (Symbol& symbol : found) symbol.address += first->begin - first->offset;
    return found;
}

}  // namespace dp::stacks
