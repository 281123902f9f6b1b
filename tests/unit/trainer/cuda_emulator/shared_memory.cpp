// SPDX-License-Identifier: Apache-2.0
#include "shared_memory.hpp"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string_view>

#include "blocks.hpp"

namespace dp::cuda_emulator {
namespace {

struct Module {
    const void* beside;
    std::string file;
    SharedMemory memory;
};

// For dl_iterate_phdr().
int find(dl_phdr_info* info, std::size_t, void* data) {
    auto& module = *static_cast<Module*>(data);
    char* const first = static_cast<char*>(info->dlpi_tls_data);
    if (first == nullptr) return 0;
    const char *low = nullptr, *high = nullptr;
    std::size_t size = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& header = info->dlpi_phdr[i];
        if (header.p_type == PT_TLS) size = header.p_memsz;
        if (header.p_type != PT_LOAD) continue;
        const char* begin = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
        low = low == nullptr ? begin : std::min(low, begin);
        high = std::max(high, begin + header.p_memsz);
    }
    if (module.beside < first || module.beside >= first + size) return 0;
    module.file = *info->dlpi_name == '\0' ? "/proc/self/exe" : info->dlpi_name;
    module.memory = {first, size, {}, {}, {}, low, high};
    return 1;
}

// The name of a variable of a function, as in its source.
std::string source_name(const char* symbol) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> whole(
        abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
    if (status != 0) return symbol;
    const std::string_view name = whole.get();
    const auto colons = name.rfind("::");
    return std::string(colons == name.npos ? name : name.substr(colons + 2));
}

// Of a function's thread-local: the function. Empty if it is no mark.
std::string_view function_of_mark(std::string_view symbol) {
    const auto at = symbol.rfind("dp_shared_of_line_");
    if (at == symbol.npos) return {};
    // Before it is its length.
    return symbol.substr(0, symbol.find_last_not_of("0123456789", at - 1) + 1);
}

// The thread-locals of functions.
void read_variables(const std::string& file, SharedMemory& memory) {
    const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat about {};
    if (descriptor < 0 || fstat(descriptor, &about) != 0) refuse("cannot read " + file);
    const auto bytes = static_cast<std::size_t>(about.st_size);
    void* const mapped = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    close(descriptor);
    if (mapped == MAP_FAILED) refuse("cannot read " + file);
    const char* const start = static_cast<const char*>(mapped);
    const auto& header = *reinterpret_cast<const Elf64_Ehdr*>(start);
    const auto* sections = reinterpret_cast<const Elf64_Shdr*>(start + header.e_shoff);
    bool has_table = false;
    std::map<std::size_t, std::string> marks, symbols_of_variables;  // by their offsets
    for (unsigned i = 0; i < header.e_shnum; ++i) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        has_table = true;
        const char* const names = start + sections[sections[i].sh_link].sh_offset;
        const auto* symbols = reinterpret_cast<const Elf64_Sym*>(start + sections[i].sh_offset);
        for (std::size_t j = 0; j < sections[i].sh_size / sizeof(Elf64_Sym); ++j) {
            const Elf64_Sym& symbol = symbols[j];
            const std::string_view name = names + symbol.st_name;
            if (ELF64_ST_TYPE(symbol.st_info) != STT_TLS || symbol.st_shndx == SHN_UNDEF) continue;
            if (const auto function = function_of_mark(name); !function.empty()) {
                if (name.starts_with("_ZZ")) marks[symbol.st_value] = function;
            } else if (name.starts_with("_ZZ")) {
                memory.variables.push_back({source_name(name.data()), symbol.st_value, symbol.st_size});
                symbols_of_variables[symbol.st_value] = name;
            }
            if (name.starts_with("_ZGVZ")) memory.guards.push_back(symbol.st_value);
        }
    }
    munmap(mapped, bytes);
    if (!has_table) refuse(file + " has no symbol table, by which shared variables are found");
    std::ranges::sort(memory.variables, {}, &SharedVariable::offset);
    std::ranges::sort(memory.guards);
    for (const auto& [offset, function] : marks)
        for (std::size_t i = 0; i < memory.variables.size(); ++i)
            if (symbols_of_variables[memory.variables[i].offset].starts_with(function))
                memory.of_functions[offset].push_back(i);
}

}  // namespace

const SharedMemory& shared_memory(const void* beside) {
    thread_local std::map<const void*, std::unique_ptr<Module>> known;
    auto& module = known[beside];
    if (module != nullptr) return module->memory;
    module = std::make_unique<Module>();
    module->beside = beside;
    if (dl_iterate_phdr(find, module.get()) == 0) refuse("a kernel of no module");
    read_variables(module->file, module->memory);
    return module->memory;
}

}  // namespace dp::cuda_emulator
