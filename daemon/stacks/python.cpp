// SPDX-License-Identifier: Apache-2.0
#include "stacks/python.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "base/text.hpp"

namespace dp::stacks {
namespace {

// More than anybody reads.
constexpr size_t kMaxInterpreters = 64, kMaxThreads = 4096, kMaxFrames = 4096;
constexpr uint64_t kMaxText = 1 << 16, kMaxLines = 1 << 20;
// How often a stack, or the list of threads, is read anew that has changed meanwhile.
constexpr int kAttempts = 200;
constexpr size_t kMostRemembered = 100'000;
constexpr size_t kLargestFrame = 256;  // bytes, as far as it is read
constexpr uint64_t kTag = 7;           // 3.14 marks pointers in these bits

std::string_view file_name(std::string_view path) {
    return path.substr(path.rfind('/') + 1);
}

// The mapped files that may hold an interpreter, the likeliest first.
std::vector<std::string> files_of_python(const Process& process) {
    std::vector<std::string> files;
    const auto add = [&](const std::string& path) {
        if (std::find(files.begin(), files.end(), path) == files.end()) files.push_back(path);
    };
    for (const std::string_view beginning : {"libpython", "python"})
        for (const Mapping& one : process.mappings())
            if (file_name(one.path).starts_with(beginning)) add(one.path);
    add(process.program());  // which may contain one
    return files;
}

// "libpython3.10.so.1.0", "python3.10".
std::optional<PythonVersion> version_of_name(std::string_view name) {
    const size_t at = name.find("python");
    if (at == std::string_view::npos) return std::nullopt;
    const auto words = split(name.substr(at + 6), '.');
    if (words.size() < 2) return std::nullopt;
    const auto major = parse_number<unsigned>(words[0]), minor = parse_number<unsigned>(words[1]);
    if (!major || !minor) return std::nullopt;
    return PythonVersion{*major, *minor};
}

uint64_t address_of(const std::vector<Symbol>& symbols, std::string_view name) {
    const auto found =
        std::find_if(symbols.begin(), symbols.end(), [&](const Symbol& one) { return one.name == name; });
    return found == symbols.end() ? 0 : found->address;
}

Try<PythonLayout> layout_of(const Process& process, const std::vector<Symbol>& symbols,
                            std::string_view file) {
    const auto table = process.read<std::array<uint64_t, kDebugOffsets>>(address_of(symbols, "_PyRuntime"));
    if (table)
        if (auto layout = layout_of_table(*table); layout || (*table)[0] == kDebugCookie) return layout;
    std::optional<PythonVersion> version = version_of_name(file_name(file));
    if (const uint64_t at = address_of(symbols, "Py_Version"))
        if (const auto number = process.read<uint64_t>(at))
            version = {static_cast<unsigned>(*number >> 24 & 0xff),
                       static_cast<unsigned>(*number >> 16 & 0xff)};
    if (!version) return fail("it is not known which version of Python " + printable(file) + " is");
    return layout_of_version(*version);
}

// Where glibc keeps a thread's number in what pthread_self() points to.
size_t offset_of_thread_number() {
    static const size_t offset = [] {
        const auto* const self = reinterpret_cast<const char*>(pthread_self());
        const pid_t own = gettid();
        for (size_t at = 0; at < 1024; at += sizeof own)
            if (std::memcmp(self + at, &own, sizeof own) == 0) return at;
        return size_t{0};
    }();
    return offset;
}

// What would change a terminal becomes '?', and what is no character: half of a pair stands for a byte of a file's name.
void append_utf8(std::string& text, uint32_t c) {
    const auto add = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
    const bool is_control = c < 0x20 || (c >= 0x7f && c < 0xa0);
    if (is_control || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff) return add('?');
    if (c < 0x80) return add(c);
    if (c < 0x800) {
        add(0xc0 | c >> 6);
    } else {
        if (c < 0x10000) {
            add(0xe0 | c >> 12);
        } else {
            add(0xf0 | c >> 18);
            add(0x80 | (c >> 12 & 0x3f));
        }
        add(0x80 | (c >> 6 & 0x3f));
    }
    add(0x80 | (c & 0x3f));
}

}  // namespace

Try<std::optional<Python>> Python::find(const Process& process) {
    for (const std::string& file : files_of_python(process)) {
        const auto symbols = DP_TRY(process.symbols(file, {"_PyRuntime", "PyCode_Type", "Py_Version"}));
        Python python;
        python.runtime_ = address_of(symbols, "_PyRuntime");
        if (python.runtime_ == 0) continue;
        python.process_ = &process;
        python.file_ = file;
        python.code_type_ = address_of(symbols, "PyCode_Type");
        python.layout_ = DP_TRY(layout_of(process, symbols, file));
        return python;
    }
    return std::nullopt;
}

std::vector<ThreadStack> Python::stacks() const {
    std::vector<ThreadStack> stacks;
    const auto threads = process_->threads();
    auto interpreter = process_->read<uint64_t>(runtime_ + layout_.runtime.first_interpreter);
    for (size_t i = 0; i < kMaxInterpreters && interpreter && *interpreter != 0; ++i) {
        for (ThreadStack& one : threads_of(*interpreter)) {
            const auto known = threads.find(one.thread);
            one.thread = known == threads.end() ? 0 : known->second;
            stacks.push_back(std::move(one));
        }
        interpreter = process_->read<uint64_t>(*interpreter + layout_.interpreter.next);
    }
    // The main thread was there first, and Python puts new ones before the others.
    auto main = std::find_if(stacks.begin(), stacks.end(),
                             [&](const ThreadStack& one) { return one.thread == process_->pid(); });
    if (main == stacks.end() && !stacks.empty()) --main;
    if (!stacks.empty()) std::rotate(stacks.begin(), main, main + 1);
    return stacks;
}

// Whether the list was read to its end.
bool Python::list_threads(uint64_t interpreter, std::vector<uint64_t>& threads) const {
    auto thread = process_->read<uint64_t>(interpreter + layout_.interpreter.first_thread);
    while (thread && *thread != 0 && threads.size() < kMaxThreads) {
        if (process_->read<uint64_t>(*thread + layout_.thread.interpreter) != interpreter) return false;
        threads.push_back(*thread);
        thread = process_->read<uint64_t>(*thread + layout_.thread.next);
    }
    return thread && *thread == 0;
}

std::vector<ThreadStack> Python::threads_of(uint64_t interpreter) const {
    std::vector<uint64_t> threads;
    bool is_whole = false;
    for (int attempt = 0; attempt < kAttempts && !is_whole; ++attempt) {
        threads.clear();
        is_whole = list_threads(interpreter, threads);
    }
    std::vector<ThreadStack> stacks;
    for (const uint64_t thread : threads) stacks.push_back(stack_of(thread));
    if (!is_whole) stacks.push_back({0, {}, "more threads, which cannot be listed"});
    return stacks;
}

pid_t Python::number_of(uint64_t thread) const {
    if (layout_.thread.native_id != 0)
        return static_cast<pid_t>(process_->read<uint64_t>(thread + layout_.thread.native_id).value_or(0));
    const auto self = process_->read<uint64_t>(thread + layout_.thread.thread_id);
    return self ? process_->read<pid_t>(*self + offset_of_thread_number()).value_or(0) : 0;
}

// A thread that runs does so while it is read: its calls are whole if two readings in a row find the same.
ThreadStack Python::stack_of(uint64_t thread) const {
    ThreadStack stack;
    stack.thread = number_of(thread);
    std::optional<Calls> before;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        auto calls = read_calls(thread, kMaxFrames);
        const bool is_whole = before && calls && are_of_one_moment(*before, *calls);
        before = std::move(calls);
        if (!is_whole) continue;
        stack.frames.clear();
        for (const Call& call : *before)
            if (auto frame = in_words(call)) stack.frames.push_back(std::move(*frame));
        if (stack.frames.size() < before->size()) continue;
        if (stack.frames.size() == kMaxFrames) stack.incomplete = "outer calls are not shown";
        return stack;
    }
    stack.frames.clear();
    stack.incomplete = "busy: its calls changed each time they were read";
    return stack;
}

std::optional<uint64_t> Python::innermost_frame(uint64_t thread) const {
    const auto frame = process_->read<uint64_t>(thread + layout_.thread.frame);
    if (!frame || *frame == 0 || !layout_.has_c_frames) return frame;
    return process_->read<uint64_t>(*frame + layout_.frame.of_c_frame);
}

// nullopt if a frame is not one (any more). Each is read at once: there is little time.
std::optional<Python::Calls> Python::read_calls(uint64_t thread, size_t most) const {
    const auto& at = layout_.frame;
    constexpr uint64_t kGenerator = 1;  // an owner
    const size_t size =
        std::max({at.previous + 8, at.code + 8, at.instruction + at.instruction_size, at.owner + 1});
    std::array<char, kLargestFrame> bytes;
    const auto number = [&](uint64_t offset, size_t length) {
        uint64_t value = 0;
        std::memcpy(&value, bytes.data() + offset, length);
        return value;
    };
    auto frame = innermost_frame(thread);
    bool is_generators = false;
    Calls calls;
    for (size_t i = 0; frame && *frame != 0 && calls.size() < most; ++i) {
        if (i > 2 * kMaxFrames || size > bytes.size() || !process_->read(*frame, bytes.data(), size))
            return std::nullopt;
        const uint64_t owner = at.owner == 0 ? 0 : number(at.owner, 1);
        if (owner < at.not_of_functions)
            calls.push_back(
                {*frame, number(at.code, 8) & ~kTag, number(at.instruction, at.instruction_size)});
        is_generators = at.generator != 0 ? number(at.generator, 8) != 0 : owner == kGenerator;
        frame = number(at.previous, 8);
    }
    // Somebody calls a generator; if nobody does, it has just stopped to run.
    if (!frame || (*frame == 0 && is_generators)) return std::nullopt;
    return calls;
}

// The innermost may have gone on in its function.
bool Python::are_of_one_moment(const Calls& one, const Calls& other) const {
    return std::equal(one.begin(), one.end(), other.begin(), other.end(), [&](const Call& a, const Call& b) {
        return a.frame == b.frame && a.code == b.code &&
               (a.instruction == b.instruction || &a == &one.front());
    });
}

std::optional<Frame> Python::in_words(const Call& call) const {
    constexpr uint64_t kType = 8;  // of an object
    if (code_type_ != 0 && process_->read<uint64_t>(call.code + kType) != code_type_) return std::nullopt;
    const auto pointer = [&](uint64_t offset) {
        return process_->read<uint64_t>(call.code + offset).value_or(0);
    };
    auto function = read_text(pointer(layout_.code.name));
    auto file = read_text(pointer(layout_.code.file));
    const auto line = line_of_call(call);
    if (!function || !file || !line) return std::nullopt;
    return Frame{std::move(*function), std::move(*file), *line};
}

std::optional<uint32_t> Python::line_of_call(const Call& call) const {
    const auto table = process_->read<uint64_t>(call.code + layout_.code.lines);
    const auto lines = read_bytes(table.value_or(0));
    const auto first_line = process_->read<uint32_t>(call.code + layout_.code.first_line);
    if (!lines || !first_line) return std::nullopt;
    const int64_t at = layout_.code.instructions != 0
                           ? static_cast<int64_t>(call.instruction - (call.code + layout_.code.instructions))
                           : int64_t{static_cast<int32_t>(call.instruction)} * layout_.code.instruction_bytes;
    constexpr int64_t kNotBegun = -2;
    if (at < kNotBegun) return std::nullopt;
    return line_of(layout_.line_table, *lines, *first_line, at);
}

Python::Place Python::place() const {
    constexpr size_t kLookedAt = 64;
    if (main_thread_ == 0) {
        std::vector<uint64_t> threads;
        const auto interpreter = process_->read<uint64_t>(runtime_ + layout_.runtime.first_interpreter);
        if (!interpreter || !list_threads(*interpreter, threads) || threads.empty()) return {};
        main_thread_ = threads.back();  // new ones come before the others
    }
    const auto calls = read_calls(main_thread_, kLookedAt);
    if (!calls) {
        main_thread_ = 0;
        return {};
    }
    Place place;
    std::string seen;
    const auto add = [&](uint64_t number) {
        seen.append(reinterpret_cast<const char*>(&number), sizeof number);
    };
    for (size_t i = 0; i < calls->size(); ++i) {
        const Call& call = (*calls)[i];
        const PythonFile file = file_of(call.code);
        add(call.frame);
        add(call.code);
        if (i == 0) {
            place.innermost = file;
            place.line = line_in_short(call);
        } else {
            add(call.instruction);
        }
        // What a wait of Python's own remembers, such as the time that is left, is no progress.
        if (file != PythonFile::standard) seen += variables_of(call, i > 0 ? (*calls)[i - 1].frame : 0);
    }
    place.number = std::hash<std::string>()(seen) | 1;
    return place;
}

// The bytes of a frame's variables, more or less. `inner`: the frame that it calls, or 0.
std::string Python::variables_of(const Call& call, uint64_t inner) const {
    constexpr uint64_t kMost = 512, kOfInnermost = 256;
    const auto& at = layout_.frame;
    uint64_t begin = call.frame, end = call.frame + kOfInnermost;
    if (at.value_stack != 0) {  // an object with all of them
        begin = call.frame + at.variables;
        end = process_->read<uint64_t>(call.frame + at.value_stack).value_or(0);
    } else if (inner > call.frame) {  // which follows it in memory, unless it is a generator's
        end = inner;
    } else if (inner != 0) {
        return "";
    }
    if (end <= begin) return "";
    std::string bytes(std::min(end - begin, kMost), '\0');
    if (!process_->read(begin, bytes.data(), bytes.size())) return "";
    // A loop goes round at one place.
    const bool has_instruction =
        inner == 0 && at.value_stack == 0 && bytes.size() >= at.instruction + at.instruction_size;
    if (has_instruction) bytes.replace(at.instruction, at.instruction_size, at.instruction_size, '\0');
    return bytes;
}

// As in_words, but faster: each is read once.
uint64_t Python::line_in_short(const Call& call) const {
    if (lines_.size() > kMostRemembered) lines_.clear();
    const auto [known, is_new] = lines_.try_emplace({call.code, call.instruction});
    if (is_new) known->second = line_of_call(call).value_or(0);
    return known->second;
}

PythonFile Python::file_of(uint64_t code) const {
    if (files_.size() > kMostRemembered) files_.clear();
    const auto [known, is_new] = files_.try_emplace(code);
    if (is_new)
        known->second = kind_of_python_file(
            read_text(process_->read<uint64_t>(code + layout_.code.file).value_or(0)).value_or(""));
    return known->second;
}

std::optional<std::string> Python::read_text(uint64_t address) const {
    const auto length = process_->read<uint64_t>(address + layout_.text.length);
    const auto state = process_->read<uint32_t>(address + layout_.text.state);
    if (!length || !state) return std::nullopt;
    const unsigned bytes = *state >> 2 & 7;  // a character's
    const bool is_in_one_piece = *state >> 5 & 1, is_ascii = *state >> 6 & 1;
    if (!is_in_one_piece || (bytes != 1 && bytes != 2 && bytes != 4)) return std::nullopt;
    std::string raw(std::min(*length, kMaxText) * bytes, '\0');
    if (!process_->read(address + (is_ascii ? layout_.text.ascii : layout_.text.wide), raw.data(),
                        raw.size()))
        return std::nullopt;
    std::string text;
    for (size_t i = 0; i < raw.size(); i += bytes) {
        uint32_t character = 0;
        std::memcpy(&character, raw.data() + i, bytes);
        append_utf8(text, character);
    }
    return text;
}

std::optional<std::string> Python::read_bytes(uint64_t address) const {
    const auto size = process_->read<uint64_t>(address + layout_.bytes.size);
    if (!size || *size > kMaxLines) return std::nullopt;
    std::string bytes(*size, '\0');
    if (!process_->read(address + layout_.bytes.content, bytes.data(), bytes.size())) return std::nullopt;
    return bytes;
}

}  // namespace dp::stacks
