// SPDX-License-Identifier: Apache-2.0
#include "stacks/python_layout.hpp"

#include <string>

namespace dp::stacks {
namespace {

std::string text(PythonVersion version) {
    return "Python " + std::to_string(version.major) + "." + std::to_string(version.minor);
}

// Frames are objects; a frame's instruction is a number.
PythonLayout with_frame_objects(uint64_t instruction, unsigned instruction_bytes, LineTable lines) {
    return {.runtime = {.first_interpreter = 32},
            .interpreter = {.next = 0, .first_thread = 8},
            .thread = {.next = 8, .interpreter = 16, .frame = 24, .thread_id = 176, .native_id = 0},
            .has_c_frames = false,
            .frame = {.of_c_frame = 0,
                      .previous = 24,
                      .code = 32,
                      .instruction = instruction,
                      .instruction_size = 4,
                      .owner = 0,
                      .not_of_functions = 3,
                      .generator = instruction - 8,
                      .variables = instruction + 256,
                      .value_stack = 64},
            .code = {.file = 104,
                     .name = 112,
                     .first_line = 40,
                     .lines = 120,
                     .instructions = 0,
                     .instruction_bytes = instruction_bytes},
            .line_table = lines,
            .text = {.length = 16, .state = 32, .ascii = 48, .wide = 72},
            .bytes = {.size = 16, .content = 32}};
}

PythonLayout of_3_11() {
    return {.runtime = {.first_interpreter = 40},
            .interpreter = {.next = 0, .first_thread = 16},
            .thread = {.next = 8, .interpreter = 16, .frame = 56, .thread_id = 152, .native_id = 160},
            .has_c_frames = true,
            .frame = {.of_c_frame = 8,
                      .previous = 48,
                      .code = 32,
                      .instruction = 56,
                      .instruction_size = 8,
                      .owner = 69,
                      .not_of_functions = 3,
                      .generator = 0,
                      .variables = 0,
                      .value_stack = 0},
            .code = {.file = 112,
                     .name = 128,
                     .first_line = 72,
                     .lines = 136,
                     .instructions = 184,
                     .instruction_bytes = 1},
            .line_table = LineTable::locations,
            .text = {.length = 16, .state = 32, .ascii = 48, .wide = 72},
            .bytes = {.size = 16, .content = 32}};
}

PythonLayout of_3_12() {
    return {.runtime = {.first_interpreter = 40},
            .interpreter = {.next = 0, .first_thread = 72},
            .thread = {.next = 8, .interpreter = 16, .frame = 56, .thread_id = 136, .native_id = 144},
            .has_c_frames = true,
            .frame = {.of_c_frame = 0,
                      .previous = 8,
                      .code = 0,
                      .instruction = 56,
                      .instruction_size = 8,
                      .owner = 70,
                      .not_of_functions = 3,
                      .generator = 0,
                      .variables = 0,
                      .value_stack = 0},
            .code = {.file = 112,
                     .name = 128,
                     .first_line = 68,
                     .lines = 136,
                     .instructions = 192,
                     .instruction_bytes = 1},
            .line_table = LineTable::locations,
            .text = {.length = 16, .state = 32, .ascii = 40, .wide = 56},
            .bytes = {.size = 16, .content = 32}};
}

}  // namespace

Try<PythonLayout> layout_of_version(PythonVersion version) {
    if (version == PythonVersion{3, 9}) return with_frame_objects(104, 1, LineTable::increments);
    if (version == PythonVersion{3, 10}) return with_frame_objects(96, 2, LineTable::ranges);
    if (version == PythonVersion{3, 11}) return of_3_11();
    if (version == PythonVersion{3, 12}) return of_3_12();
    return fail(text(version) + " is not supported (3.9 to 3.14 are)");
}

// The table's parts each begin with the size of what they tell of, and grow from version to version.
Try<PythonLayout> layout_of_table(std::span<const uint64_t, kDebugOffsets> table) {
    const PythonVersion version{static_cast<unsigned>(table[1] >> 24 & 0xff),
                                static_cast<unsigned>(table[1] >> 16 & 0xff)};
    if (table[0] != kDebugCookie) return fail("the interpreter carries no table of its structures");
    if (version != PythonVersion{3, 13} && version != PythonVersion{3, 14})
        return fail(text(version) + " is not supported (3.9 to 3.14 are)");
    if (table[2] != 0) return fail("free-threaded Python is not supported");
    const bool is_3_13 = version.minor == 13;
    const auto thread = table.subspan(is_3_13 ? 19 : 22);
    const auto frame = table.subspan(is_3_13 ? 28 : 31);
    const auto code = table.subspan(is_3_13 ? 34 : 39);
    const auto bytes = table.subspan(is_3_13 ? 64 : 74);
    const auto text = table.subspan(is_3_13 ? 67 : 77);
    // What the interpreter itself pushes belongs to no function; 3.14 added a kind of it.
    return PythonLayout{.runtime = {.first_interpreter = table[5]},
                        .interpreter = {.next = table[8], .first_thread = table[9]},
                        .thread = {.next = thread[2],
                                   .interpreter = thread[3],
                                   .frame = thread[4],
                                   .thread_id = thread[5],
                                   .native_id = thread[6]},
                        .has_c_frames = false,
                        .frame = {.of_c_frame = 0,
                                  .previous = frame[1],
                                  .code = frame[2],
                                  .instruction = frame[3],
                                  .instruction_size = 8,
                                  .owner = frame[5],
                                  .not_of_functions = 3,
                                  .generator = 0,
                                  .variables = 0,
                                  .value_stack = 0},
                        .code = {.file = code[1],
                                 .name = code[3],
                                 .first_line = code[5],
                                 .lines = code[4],
                                 .instructions = code[9],
                                 .instruction_bytes = 1},
                        .line_table = LineTable::locations,
                        .text = {.length = text[2],
                                 .state = text[1],
                                 .ascii = text[3],
                                 // UTF-8 and its length lie between.
                                 .wide = text[3] + 16},
                        .bytes = {.size = bytes[1], .content = bytes[2]}};
}

}  // namespace dp::stacks
