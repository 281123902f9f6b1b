// SPDX-License-Identifier: Apache-2.0
//
// The build id of the running program, a part of the cache's keys.
#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>

#include <cstring>
#include <filesystem>
#include <string_view>

#include "trainer/compile/entry.hpp"

namespace dp::trainer {
namespace {

// Each note has three words (lengths of name and text, type), the name and the text, both padded to words.
std::string build_id_in(std::string_view notes) {
    const auto padded = [](std::size_t length) { return (length + 3) / 4 * 4; };
    ElfW(Nhdr) note;
    while (notes.size() >= sizeof note) {
        std::memcpy(&note, notes.data(), sizeof note);
        const std::size_t text = sizeof note + padded(note.n_namesz), all = text + padded(note.n_descsz);
        if (all > notes.size()) break;
        if (note.n_type == NT_GNU_BUILD_ID && notes.substr(sizeof note).starts_with("GNU")) {
            const auto* id = reinterpret_cast<const unsigned char*>(notes.data() + text);
            return fmt::format("{:02x}", fmt::join(id, id + note.n_descsz, ""));
        }
        notes.remove_prefix(all);
    }
    return "";
}

}  // namespace

std::string build_of_this_program() {
    std::string id;
    // For the first object that the dynamic linker lists: the program itself.
    const auto look = [](dl_phdr_info* object, std::size_t, void* found) {
        auto& its = *static_cast<std::string*>(found);
        for (int i = 0; i < object->dlpi_phnum; ++i) {
            const auto& segment = object->dlpi_phdr[i];
            const auto* begin = reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr);
            if (segment.p_type == PT_NOTE && its.empty()) its = build_id_in({begin, segment.p_memsz});
        }
        return 1;
    };
    dl_iterate_phdr(look, &id);
    if (id.empty()) {
        std::error_code error;
        const std::filesystem::path program = "/proc/self/exe";
        const auto size = std::filesystem::file_size(program, error);
        const auto date = std::filesystem::last_write_time(program, error).time_since_epoch().count();
        id = fmt::format("of {} bytes at {}", size, date);
    }
    return fmt::format("{}, build {}", DP_TRAINER_VERSION, id);
}

}  // namespace dp::trainer
