// SPDX-License-Identifier: Apache-2.0
//
// NVIDIA's management library (libnvidia-ml), opened at run time if the node has it. Names, values and types are those of nvml.h of
// CUDA 12, written down again: this is built without CUDA.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>

#include "base/failure.hpp"
#include "base/text.hpp"
#include "record/clock_reasons.hpp"

namespace dp::nvml {

inline constexpr const char* kLibrary = "libnvidia-ml.so.1";

// nvmlReturn_t.
inline constexpr int kSuccess = 0;
inline constexpr int kNotSupported = 3;
inline constexpr int kNoPermission = 4;
inline constexpr int kNotFound = 6;
inline constexpr int kFunctionNotFound = 13;
using Handle = void*;  // nvmlDevice_t

inline constexpr const char* kSlowedBy = "nvmlDeviceGetCurrentClocksThrottleReasons";
// nvmlDeviceGetTotalEccErrors' kinds: nvmlMemoryErrorType_t, nvmlEccCounterType_t.
inline constexpr int kUncorrected = 1, kSinceLoaded = 0;

// Of functions that return an int.
class SharedObject {
 public:
    explicit SharedObject(const std::string& name) : object_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
    SharedObject(const SharedObject&) = delete;
    SharedObject& operator=(const SharedObject&) = delete;
    ~SharedObject() {
        if (object_) dlclose(object_);
    }
    bool is_there() const { return object_ != nullptr; }

    template <typename... Arguments>
    int call(const char* function, Arguments... arguments) const {
        const auto found = reinterpret_cast<int (*)(Arguments...)>(symbol(function));
        return found ? found(arguments...) : kFunctionNotFound;
    }
    void* symbol(const char* name) const { return dlsym(object_, name); }

 private:
    void* object_;
};

class Library : public SharedObject {
 public:
    explicit Library(const std::string& name) : SharedObject(name), name_(name) {}
    ~Library() {
        if (is_there()) call("nvmlShutdown");
    }

    // A call that must succeed.
    template <typename... Arguments>
    Try<void> require(const char* function, Arguments... arguments) const {
        const int result = call(function, arguments...);
        return result == kSuccess ? Try<void>() : failed(function, result);
    }

    tl::unexpected<Failure> failed(const char* function, int result) const {
        if (result == kFunctionNotFound)
            return fail(name_ + " has no " + function + ": update NVIDIA's driver to 450 or later");
        const auto error_string = reinterpret_cast<const char* (*)(int)>(symbol("nvmlErrorString"));
        const char* const words = error_string ? error_string(result) : nullptr;
        return fail(name_ + ": " + function + ": " + printable(words ? words : "", 100) + " (" +
                    std::to_string(result) + ")");
    }

 private:
    std::string name_;
};

}  // namespace dp::nvml
