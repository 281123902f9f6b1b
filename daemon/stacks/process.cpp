// SPDX-License-Identifier: Apache-2.0
#include "stacks/process.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <gelf.h>
#include <unistd.h>

#include <algorithm>
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

std::string why_unreadable(pid_t pid, int error) {
    const std::string process = "process " + std::to_string(pid);
    if (error == ENOENT || error == ESRCH) return process + " has ended";
    if (error != EACCES && error != EPERM)
        return process + "'s memory cannot be opened: " + errno_text(error);
    if (parse_number<int>(printable(read_file("/proc/sys/kernel/yama/ptrace_scope"), 1)).value_or(0) > 0)
        return process + " may not be read: kernel.yama.ptrace_scope lets only its ancestors do that";
    return process + " may not be read: it is another user's, or has changed its user";
}

}  // namespace

std::vector<Mapping> parse_maps(std::string_view text) {
    std::vector<Mapping> mappings;
    for (std::string_view line : split(text, '\n')) {
        const std::string_view range = next_word(line);
        const auto begin = parse_hex(range.substr(0, range.find('-')));
        next_word(line);  // what is allowed
        const auto offset = parse_hex(next_word(line));
        next_word(line);  // the device
        next_word(line);  // the file's number
        if (begin && offset && line.starts_with('/'))
            mappings.push_back({*begin, *offset, std::string(line)});
    }
    return mappings;
}

std::vector<Symbol> find_symbols(int file, std::initializer_list<std::string_view> names) {
    elf_version(EV_CURRENT);
    const std::unique_ptr<Elf, int (*)(Elf*)> elf(elf_begin(file, ELF_C_READ_MMAP, nullptr), elf_end);
    if (!elf) return {};
    const uint64_t base = first_address(elf.get());
    std::vector<Symbol> found;
    for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf.get(), section));) {
        GElf_Shdr header;
        if (!gelf_getshdr(section, &header) ||
            (header.sh_type != SHT_DYNSYM && header.sh_type != SHT_SYMTAB) || header.sh_entsize == 0)
            continue;
        Elf_Data* const data = elf_getdata(section, nullptr);
        for (size_t i = 0; data && i < header.sh_size / header.sh_entsize; ++i) {
            GElf_Sym symbol;
            if (!gelf_getsym(data, static_cast<int>(i), &symbol) || symbol.st_shndx == SHN_UNDEF) continue;
            const char* const name = elf_strptr(elf.get(), header.sh_link, symbol.st_name);
            if (name && std::find(names.begin(), names.end(), name) != names.end())
                found.push_back({name, symbol.st_value - base});
        }
        if (found.size() >= names.size()) break;
    }
    return found;
}

Try<Process> Process::open(pid_t pid) {
    Process process;
    process.pid_ = pid;
    process.memory_.reset(::open(proc(pid, "mem").c_str(), O_RDONLY | O_CLOEXEC));
    if (!process.memory_) return fail(why_unreadable(pid, errno));
    process.mappings_ = parse_maps(read_file(proc(pid, "maps")));
    if (process.mappings_.empty()) return fail(why_unreadable(pid, ESRCH));
    return process;
}

std::optional<pid_t> innermost_number(std::string_view status) {
    constexpr std::string_view kKey = "\nNSpid:\t";
    const size_t at = status.find(kKey);
    if (at == std::string_view::npos) return std::nullopt;
    status.remove_prefix(at + kKey.size());
    return parse_number<pid_t>(split(status.substr(0, status.find('\n')), '\t').back());
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
    return pread(memory_.get(), to, size, static_cast<off_t>(address)) == static_cast<ssize_t>(size);
}

std::vector<Symbol> Process::symbols(const std::string& path,
                                     std::initializer_list<std::string_view> names) const {
    const auto first = std::find_if(mappings_.begin(), mappings_.end(),
                                    [&](const Mapping& one) { return one.path == path; });
    const Fd file(::open(proc(pid_, "root" + path).c_str(), O_RDONLY | O_CLOEXEC));
    if (first == mappings_.end() || !file) return {};
    auto found = find_symbols(file.get(), names);
    for (Symbol& symbol : found) symbol.address += first->begin - first->offset;
    return found;
}

}  // namespace dp::stacks
