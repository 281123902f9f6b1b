// SPDX-License-Identifier: Apache-2.0
#include "trainer/compile/build.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>
#include <filesystem>
#include <string_view>

namespace dp::trainer {
namespace {

// Finds it in a segment of notes: each has three words (length of the name, length of the text, type), the
// name and the text, both padded to whole words.
std::string build_id_in(const char* at, std::size_t bytes) {
    const auto filled = [](std::size_t length) { return (length + 3) / 4 * 4; };
    ElfW(Nhdr) note;
    while (bytes >= sizeof note) {
        std::memcpy(&note, at, sizeof note);
        const std::size_t name = filled(note.n_namesz), all = sizeof note + name + filled(note.n_descsz);
        if (all > bytes) break;
        if (note.n_type == NT_GNU_BUILD_ID &&
            std::string_view(at + sizeof note, note.n_namesz) == std::string_view("GNU", sizeof "GNU")) {
            std::string id;
            for (std::size_t i = 0; i < note.n_descsz; ++i)
                id += fmt::format("{:02x}", static_cast<unsigned char>(at[sizeof note + name + i]));
            return id;
        }
        at += all;
        bytes -= all;
    }
    return "";
}

// For the first object that the dynamic linker lists: the program itself.
int look(dl_phdr_info* object, std::size_t, void* found) {
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const auto& segment = object->dlpi_phdr[i];
        auto& id = *static_cast<std::string*>(found);
        if (segment.p_type == PT_NOTE && id.empty())
            id = build_id_in(reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr),
                             segment.p_memsz);
    }
    return 1;
}

}  // namespace

std::string build_of_this_program() {
    std::string id;
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
