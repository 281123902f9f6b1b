// SPDX-License-Identifier: Apache-2.0
//
// NVIDIA's management library (libnvidia-ml), opened at run time if the node has it. Names, values and types are those of nvml.h of
// CUDA 12, written down again: this is built without CUDA.
#pragma once

#include <dlfcn.h>

#include <string>

#include "base/failure.hpp"
#include "base/text.hpp"

namespace dp::nvml {

inline constexpr const char* kLibrary = "libnvidia-ml.so.1";

// nvmlReturn_t.
inline constexpr int kSuccess = 0;
inline constexpr int kNotSupported = 3;
inline constexpr int kNoPermission = 4;
inline constexpr int kNotFound = 6;
inline constexpr int kFunctionNotFound = 13;
using Handle = void*;  // nvmlDevice_t

class Library {
 public:
    explicit Library(const std::string& name)
        : name_(name), object_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;
    ~Library() {
        if (!object_) return;
        call("nvmlShutdown");
        dlclose(object_);
    }
    bool is_there() const { return object_ != nullptr; }

    template <typename... Arguments>
    int call(const char* function, Arguments... arguments) const {
        const auto found = reinterpret_cast<int (*)(Arguments...)>(dlsym(object_, function));
        return found ? found(arguments...) : kFunctionNotFound;
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
        const auto error_string = reinterpret_cast<const char* (*)(int)>(dlsym(object_, "nvmlErrorString"));
        const char* const words = error_string ? error_string(result) : nullptr;
        return fail(name_ + ": " + function + ": " + printable(words ? words : "", 100) + " (" +
                    std::to_string(result) + ")");
    }

 private:
    std::string name_;
    void* object_;
};

}  // namespace dp::nvml
