// SPDX-License-Identifier: Apache-2.0
//
// Another process of the same user: its memory, read-only, and where its programs' and libraries' data is. The
// process runs on meanwhile.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/failure.hpp"
#include "base/fd.hpp"

namespace dp::stacks {

// A file that is mapped into a process.
struct Mapping {
    uint64_t begin = 0, end = 0;
    uint64_t offset = 0;  // in the file
    bool is_executable = false;
    std::string range;  // "55d0c8a2e000-55d0c8a9d000"
    std::string path;
};

// The mapped files in a /proc/PID/maps, each mapping of each, and what the kernel maps as one ("[vdso]"). Pure.
std::vector<Mapping> parse_maps(std::string_view text);

struct Symbol {
    std::string name;
    uint64_t address = 0;
};

// Those of these symbols that a 64-bit ELF file defines, relative to where the file is loaded. `file` may be anything.
std::vector<Symbol> find_symbols(int file, std::initializer_list<std::string_view> names);

// A thread's number in the innermost pid namespace that it is in, from its /proc/PID/task/TID/status. Pure.
std::optional<pid_t> innermost_number(std::string_view status);

class Process {
 public:
    // Fails if the process is gone, another user's, of 32 bits, or not to be read (kernel.yama.ptrace_scope).
    static Try<Process> open(pid_t pid);

    pid_t pid() const { return pid_; }
    const std::vector<Mapping>& mappings() const { return mappings_; }

    // The threads by the numbers that the process itself sees, which are others in a container. The first
    // ten thousand.
    std::map<pid_t, pid_t> threads() const;

    // False also once more has been read than any honest process needs: what one points to may have no end.
    bool read(uint64_t address, void* to, size_t size) const;
    // Reads on, where it is looked at again and again.
    void renew_budget() const { left_to_read_ = kBudget; }
    template <typename T>
    std::optional<T> read(uint64_t address) const {
        T value;
        if (!read(address, &value, sizeof value)) return std::nullopt;
        return value;
    }

    // From there on as much as can be read; the same limit.
    size_t read_some(uint64_t address, void* to, size_t size) const;

    // The path of its program.
    const std::string& program() const { return program_; }

    // The symbols of a mapped file, at their addresses in the process. Looks for the file where the process sees it, a
    // container's too. Fails if the file cannot be read.
    Try<std::vector<Symbol>> symbols(const std::string& path,
                                     std::initializer_list<std::string_view> names) const;

    // The file where the process sees it, a container's too; never anything but a regular file.
    Fd open_file(const Mapping& mapping) const;

 private:
    pid_t pid_ = 0;
    std::string folder_;  // below /proc
    Fd memory_;
    std::string program_;
    std::vector<Mapping> mappings_;
    static constexpr uint64_t kBudget = uint64_t{256} << 20;
    mutable uint64_t left_to_read_ = kBudget;
};

}  // namespace dp::stacks
