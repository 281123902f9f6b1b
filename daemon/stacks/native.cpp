// SPDX-License-Identifier: Apache-2.0
#include "stacks/native.hpp"

#include <cxxabi.h>
#include <elfutils/libdwfl.h>
#include <fmt/format.h>
#include <gelf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <tuple>

#include "base/fd.hpp"
#include "base/text.hpp"
#include "stacks/thread_snapshot.hpp"

namespace dp::stacks {
namespace {

constexpr size_t kMaxNativeFrames = 256, kMaxName = 512, kMaxModules = 2048;
// A file's sections beyond these are not looked at: libdwfl reads whole ones.
constexpr uint64_t kMaxSection = uint64_t{256} << 20, kMaxDebug = uint64_t{16} << 20,
                   kMaxMiniDebug = uint64_t{1} << 20;  // compressed
constexpr std::string_view kVdso = "[vdso]";
#if defined(__x86_64__)
constexpr size_t kStackPointer = 7, kRegisters = 16;               // by DWARF's numbers
constexpr std::array<unsigned, 6> kKept = {3, 6, 12, 13, 14, 15};  // rbx, rbp, r12 to r15
#else
constexpr size_t kStackPointer = 31, kRegisters = 32;
constexpr std::array<unsigned, 11> kKept = {19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29};
#endif
// In the place of registers that are not known: no address is near it.
constexpr uint64_t kUnknown = 0xbad0'0000'0000'0000, kNear = uint64_t{1} << 40;

bool is_unknown(uint64_t address) {
    return address - (kUnknown - kNear) < 2 * kNear;
}

// 0 if there is none.
uint64_t unpacked_size(int file, const GElf_Shdr& section) {
    if (!(section.sh_flags & SHF_COMPRESSED)) return section.sh_size;
    Elf64_Chdr header{};
    if (pread(file, &header, sizeof header, static_cast<off_t>(section.sh_offset)) != sizeof header) return 0;
    return std::max<uint64_t>(header.ch_size, section.sh_size);
}

// Hides from libdwfl what would take long to read, and what names other files.
void hide_large_sections(int file, Elf* elf) {
    size_t names = 0;
    if (elf_getshdrstrndx(elf, &names) != 0) return;
    const auto for_each = [&](auto use) {
        GElf_Shdr section;
        for (Elf_Scn* at = nullptr; (at = elf_nextscn(elf, at));)
            if (gelf_getshdr(at, &section))
                if (const char* const name = elf_strptr(elf, names, section.sh_name))
                    use(at, section, std::string_view(name));
    };
    const auto is_debug = [](std::string_view name) {
        return name.starts_with(".debug_") || name.starts_with(".zdebug_");
    };
    uint64_t debug = 0;
    for_each([&](Elf_Scn*, GElf_Shdr& section, std::string_view name) {
        if (is_debug(name)) debug += std::min(unpacked_size(file, section), kMaxSection);
    });
    for_each([&](Elf_Scn* at, GElf_Shdr& section, std::string_view name) {
        const bool is_hidden = unpacked_size(file, section) > kMaxSection || name == ".gnu_debugaltlink" ||
                               name.starts_with(".zdebug_") || (is_debug(name) && debug > kMaxDebug) ||
                               (name == ".gnu_debugdata" && section.sh_size > kMaxMiniDebug);
        if (!is_hidden) return;
        section.sh_type = SHT_NOBITS;
        gelf_update_shdr(at, &section);
    });
}

// What has been read of a file serves all processes that map it: the ranks of a node. nullptr if it cannot be read.
Elf* shared_elf(Fd file) {
    using Key = std::tuple<dev_t, ino_t, off_t, time_t, long>;
    struct Shared {
        Fd file;
        std::unique_ptr<Elf, int (*)(Elf*)> elf{nullptr, elf_end};
    };
    static std::map<Key, Shared> files;
    struct stat is {};
    if (!file || fstat(file.get(), &is) != 0) return nullptr;
    elf_version(EV_CURRENT);
    const auto [place, is_new] =
        files.try_emplace({is.st_dev, is.st_ino, is.st_size, is.st_ctim.tv_sec, is.st_ctim.tv_nsec});
    Shared& shared = place->second;
    if (is_new) {
        shared.file = std::move(file);
        // Not mapped: the file may be cut meanwhile.
        shared.elf.reset(elf_begin(shared.file.get(), ELF_C_READ, nullptr));
        if (shared.elf) hide_large_sections(shared.file.get(), shared.elf.get());
    }
    // One more reference.
    return shared.elf ? elf_begin(shared.file.get(), ELF_C_READ, shared.elf.get()) : nullptr;
}

// Without its arguments, which are long in C++. "f(int) const" → "f", "(anonymous namespace)::f(int)" → "(anonymous namespace)::f".
std::string without_arguments(std::string name) {
    const size_t end = name.rfind(')');
    if (end == std::string::npos) return name;
    int depth = 0;
    for (size_t at = end + 1; at-- > 0;) {
        depth += name[at] == ')' ? 1 : name[at] == '(' ? -1 : 0;
        if (depth != 0) continue;
        if (at > 0 && !name.substr(0, at).ends_with("operator")) name.resize(at);
        break;
    }
    return name;
}

std::string readable(const char* symbol) {
    const std::string_view name(symbol, strnlen(symbol, kMaxName));
    if (name.starts_with("_Z") && name.size() < kMaxName) {
        int status = 0;
        const std::unique_ptr<char, decltype(&free)> plain(
            abi::__cxa_demangle(symbol, nullptr, nullptr, &status), free);
        if (plain) return printable(without_arguments(std::string(plain.get(), strnlen(plain.get(), 65536))));
    }
    return printable(name);
}

// What calls main, or a thread's function.
bool is_start(std::string_view function) {
    constexpr std::string_view kNames[] = {"__libc_start_call_main",
                                           "__libc_start_main",
                                           "__libc_start_main_impl",
                                           "_start",
                                           "start_thread",
                                           "clone",
                                           "__clone",
                                           "clone3",
                                           "__clone3"};
    return std::ranges::find(kNames, function) != std::end(kNames);
}

bool is_interpreter(std::string_view function) {
    return function.starts_with("_PyEval_EvalFrame") || function.starts_with("PyEval_Eval") ||
           function.starts_with("_TAIL_CALL_");
}

// How the interpreter calls a function that is not written in Python.
bool is_trampoline(std::string_view function) {
    constexpr std::string_view kPrefixes[] = {
        "PyObject_",    "_PyObject_", "PyVectorcall_",     "_PyVectorcall_", "PyCFunction_",
        "cfunction_",   "cfunction",  "method_vectorcall", "slot_tp_",       "type_call",
        "_PyFunction_", "_PyEval_",   "vectorcall_",       "wrap_call",      "object_vacall",
        "builtin_exec", "partial_",   "_PyMethodDef_",     "pymain_",        "Py_RunMain",
    };
    return std::ranges::any_of(kPrefixes, [&](auto prefix) { return function.starts_with(prefix); });
}

}  // namespace

struct NativeReader::Session {
    struct Module {
        const Session* session = nullptr;
        const Mapping* mapping = nullptr;
        uint64_t end = 0;
        std::vector<char> memory;  // of one that is in no file
    };

    const Process& process;
    const std::string python;  // a module's path; "" if it runs none
    const NativeClock::time_point deadline;
    std::deque<Module> modules;
    Dwfl* dwfl = nullptr;
    const ThreadSnapshot* snapshot = nullptr;  // that is being unwound
    NativeStack* stack = nullptr;              // to where
    bool is_broken = false;                    // libdwfl takes what it cannot read for the outermost call

    Session(const Process& of, std::string python_file, NativeClock::time_point until)
        : process(of),
          python(std::move(python_file)),
          deadline(std::min(until, NativeClock::now() + kNativePatience)) {
        static const Dwfl_Callbacks kCallbacks = {.find_elf = find_elf,
                                                  .find_debuginfo = find_no_debuginfo,
                                                  .section_address = nullptr,
                                                  .debuginfo_path = nullptr};
        dwfl = dwfl_begin(&kCallbacks);
        if (!dwfl) return;
        dwfl_report_begin(dwfl);
        report_modules();
        dwfl_report_end(dwfl, nullptr, nullptr);
        static const Dwfl_Thread_Callbacks kThreads = {.next_thread = next_thread,
                                                       .get_thread = get_thread,
                                                       .memory_read = read_memory,
                                                       .set_initial_registers = set_registers,
                                                       .detach = nullptr,
                                                       .thread_detach = nullptr};
        dwfl_attach_state(dwfl, nullptr, process.pid(), &kThreads, this);
    }
    ~Session() { dwfl_end(dwfl); }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    bool is_late() const { return NativeClock::now() > deadline; }

    // Files with code: libdwfl compares each new one to all.
    void report_modules() {
        const auto& all = process.mappings();
        for (auto first = all.begin(); first != all.end() && modules.size() < kMaxModules;) {
            const auto next =
                std::find_if(first, all.end(), [&](const Mapping& one) { return one.path != first->path; });
            if (std::any_of(first, next, [](const Mapping& one) { return one.is_executable; })) {
                Module& module = modules.emplace_back(Module{this, &*first, std::prev(next)->end, {}});
                void** userdata = nullptr;
                if (Dwfl_Module* const reported =
                        dwfl_report_module(dwfl, first->path.c_str(), first->begin, module.end)) {
                    dwfl_module_info(reported, &userdata, nullptr, nullptr, nullptr, nullptr, nullptr,
                                     nullptr);
                    *userdata = &module;
                }
            }
            first = next;
        }
    }

    static int find_elf(Dwfl_Module*, void** userdata, const char*, Dwarf_Addr, char** file_name, Elf** elf) {
        Module& module = *static_cast<Module*>(*userdata);
        const Process& process = module.session->process;
        if (module.session->is_late()) return -1;
        if (module.mapping->path == kVdso) {
            elf_version(EV_CURRENT);
            constexpr uint64_t kMost = 1 << 16;
            module.memory.resize(std::min(module.end - module.mapping->begin, kMost));
            if (process.read(module.mapping->begin, module.memory.data(), module.memory.size()))
                *elf = elf_memory(module.memory.data(), module.memory.size());
            return -1;
        }
        *elf = shared_elf(process.open_file(*module.mapping));
        if (*elf) *file_name = strdup(module.mapping->path.c_str());
        return -1;
    }

    static int find_no_debuginfo(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*,
                                 GElf_Word, char**) {
        return -1;
    }

    static pid_t next_thread(Dwfl*, void*, void**) { return 0; }

    static bool get_thread(Dwfl*, pid_t, void* session, void** thread) {
        *thread = session;
        return true;
    }

    static bool read_memory(Dwfl*, Dwarf_Addr address, Dwarf_Word* value, void* of) {
        auto& session = *static_cast<Session*>(of);
        const uint64_t at = address - session.snapshot->stack_pointer;
        const auto& copied = session.snapshot->stack;
        if (copied.size() >= sizeof *value && at <= copied.size() - sizeof *value) {
            std::memcpy(value, copied.data() + at, sizeof *value);
            return true;
        }
        const bool is_read =
            !is_unknown(address) && !session.is_late() && session.process.read(address, value, sizeof *value);
        session.is_broken |= !is_read;
        return is_read;
    }

    static bool set_registers(Dwfl_Thread* thread, void* of) {
        const ThreadSnapshot& snapshot = *static_cast<const Session*>(of)->snapshot;
        auto registers = snapshot.registers;
        registers.resize(kRegisters, kUnknown);
        registers[kStackPointer] = snapshot.stack_pointer;
        dwfl_thread_state_register_pc(thread, snapshot.instruction);
        return dwfl_thread_state_registers(thread, 0, kRegisters, registers.data());
    }

    NativeFrame in_words(uint64_t address) const {
        Dwfl_Module* const module = dwfl_addrmodule(dwfl, address);
        if (!module) return {{"generated code", "no file", 0}, "", false};
        GElf_Addr bias = 0;
        const Elf* const elf = dwfl_module_getelf(module, &bias);
        const char* const path =
            dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
        NativeFrame frame{{"", printable(path), 0}, path, false};
        if (!elf) {
            frame.frame.function = "unknown function";
            return frame;
        }
        // The ranks of a node do the same.
        constexpr size_t kMostKept = 4096;
        static std::map<std::pair<const Elf*, uint64_t>, NativeFrame> kept;
        const auto known = kept.find({elf, address - bias});
        if (known != kept.end() && known->second.module == frame.module) return known->second;
        if (const char* const name = dwfl_module_addrname(module, address)) {
            frame.frame.function = readable(name);
            frame.is_named = true;
        } else {
            frame.frame.function = fmt::format("0x{:x}", address - bias);
        }
        int line = 0;
        Dwfl_Line* const place = frame.module == python ? nullptr : dwfl_module_getsrc(module, address);
        const char* const source =
            place ? dwfl_lineinfo(place, nullptr, &line, nullptr, nullptr, nullptr) : nullptr;
        if (source && line > 0) {
            frame.frame.file = printable(source);
            frame.frame.line = static_cast<uint32_t>(line);
        }
        // The elf of the vdso is this process's alone.
        if (frame.module != kVdso && kept.size() < kMostKept) kept[{elf, address - bias}] = frame;
        return frame;
    }

    static void note_registers(Dwfl_Frame* frame, uint64_t instruction, NativeFrame& to) {
        const auto value_of = [&](unsigned number) {
            Dwarf_Word value = 0;
            return dwfl_frame_reg(frame, number, &value) == 0 && !is_unknown(value) ? value : 0;
        };
        to.instruction = instruction;
        to.stack_pointer = value_of(kStackPointer);
        for (const unsigned number : kKept) to.kept_registers.push_back(value_of(number));
    }

    static int add_frame(Dwfl_Frame* frame, void* of) {
        auto& session = *static_cast<Session*>(of);
        NativeStack& stack = *session.stack;
        Dwarf_Addr instruction = 0;
        bool is_interrupted = false;  // else it is where a call returns to
        if (!dwfl_frame_pc(frame, &instruction, &is_interrupted) || is_unknown(instruction)) {
            session.is_broken = true;
            return DWARF_CB_ABORT;
        }
        if (stack.frames.size() == kMaxNativeFrames) {
            stack.incomplete = "outer calls are not shown";
            return DWARF_CB_ABORT;
        }
        if (session.is_late()) {
            stack.incomplete = "to read its outer calls takes too long";
            return DWARF_CB_ABORT;
        }
        stack.frames.push_back(session.in_words(instruction - (is_interrupted ? 0 : 1)));
        note_registers(frame, instruction, stack.frames.back());
        const std::string& function = stack.frames.back().frame.function;
        const bool is_last =
            function == "main" || is_start(function) || (!session.python.empty() && is_interpreter(function));
        return is_last ? DWARF_CB_ABORT : DWARF_CB_OK;
    }

    // False: there are outer calls that it cannot find.
    bool unwind(const ThreadSnapshot& of, NativeStack& to) {
        snapshot = &of;
        stack = &to;
        is_broken = false;
        return dwfl && dwfl_getthread_frames(dwfl, process.pid(), add_frame, this) >= 0 && !is_broken;
    }
};

NativeReader::NativeReader(const Process& process, const std::string& python, NativeClock::time_point until)
    : session_(std::make_unique<Session>(process, python, until)) {}

NativeReader::~NativeReader() = default;

NativeStack NativeReader::read(pid_t thread) {
    NativeStack stack;
    if (session_->is_late()) return {{}, "to read it takes too long"};
    if (const auto waiting = snapshot_of_waiting(session_->process, thread);
        waiting && session_->unwind(*waiting, stack))
        return stack;
    const auto stopped = snapshot_of_stopped(session_->process, thread);
    if (!stopped) {
        stack.incomplete = stack.frames.empty() ? stopped.error().message
                                                : "outer calls are not known: " + stopped.error().message;
        return stack;
    }
    NativeStack whole;
    if (!session_->unwind(*stopped, whole)) whole.incomplete = "outer calls are not known";
    return whole;
}

std::vector<Frame> shown_frames(std::vector<NativeFrame> frames) {
    while (frames.size() > 1 && (is_start(frames.back().frame.function) ||
                                 (!frames.back().is_named && frames.back().module.ends_with("/libc.so.6"))))
        frames.pop_back();
    std::vector<Frame> shown;
    for (auto frame = frames.begin(); frame != frames.end(); ++frame) {
        const auto named =
            std::find_if(frame, frames.end(), [](const NativeFrame& one) { return one.is_named; });
        const bool is_inner = named != frames.end() && std::all_of(frame, named, [&](const NativeFrame& one) {
                                  return one.module == named->module;
                              });
        if (frame == named || !is_inner) shown.push_back(frame->frame);
    }
    return shown;
}

std::vector<NativeFrame> below_python(std::vector<NativeFrame> frames, std::string_view python) {
    auto end = std::ranges::find_if(
        frames, [](const NativeFrame& one) { return is_interpreter(one.frame.function); });
    if (end == frames.end())
        end = std::ranges::find_if(frames, [&](const NativeFrame& one) { return one.module == python; });
    while (end != frames.begin()) {
        const NativeFrame& last = *std::prev(end);
        if (last.module != python || (last.is_named && !is_trampoline(last.frame.function))) break;
        --end;
    }
    frames.erase(end, frames.end());
    return frames;
}

}  // namespace dp::stacks
