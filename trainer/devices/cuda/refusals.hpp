// SPDX-License-Identifier: Apache-2.0
//
// Why a GPU cannot be opened, for users, in one line with what to do. Pure; cuda_device.cpp asks. (A GPU without kernels:
// gpu_kernels.hpp.)
#pragma once

#include <driver_types.h>

#include <optional>
#include <string>

namespace dp::trainer {

struct GpuSituation {
    std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES
    int driver = 0;                      // for which CUDA it is, as cudaDriverGetVersion; 0: none is loaded
    int needed = 0;                      // by this build, as cudaRuntimeGetVersion
};

inline std::string cuda_version_text(int version) {
    return "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

inline std::string no_visible_gpu_text(const std::optional<std::string>& visible) {
    if (!visible) return "no GPU is visible; check CUDA_VISIBLE_DEVICES and Slurm's --gres";
    // What Slurm sets for a step without GPUs.
    if (visible->empty() || *visible == "NoDevFiles")
        return "no GPU is visible: CUDA_VISIBLE_DEVICES is " + (visible->empty() ? "empty" : *visible) +
               "; ask Slurm for GPUs (--gres=gpu:1), or unset it";
    return "no GPU is visible: CUDA_VISIBLE_DEVICES=" + *visible +
           " names none of this machine's; nvidia-smi -L lists them";
}

inline std::string old_driver_text(int driver, int needed) {
    if (driver == 0)
        return "no NVIDIA driver is loaded, though its library is here; see nvidia-smi and the kernel's log";
    std::string text = "the NVIDIA driver is for " + cuda_version_text(driver) +
                       ", but this build needs one for " + cuda_version_text(needed);
    // The first of each major version runs programs of all its minor ones (CUDA Compatibility, "Minor Version Compatibility").
    if (needed / 1000 == 13) text += ": 580 or newer";
    if (needed / 1000 == 12) text += ": 525 or newer";
    return text + "; update it, or build the trainer with an older CUDA";
}

// `said`: what CUDA answered when it was asked for GPUs or for one of them, and `in_words` its words for that.
inline std::string refusal_text(cudaError_t said, const std::string& in_words, const GpuSituation& here) {
    switch (said) {
        case cudaSuccess:  // but there are none
        case cudaErrorNoDevice:
            return no_visible_gpu_text(here.visible);
        case cudaErrorInsufficientDriver:
            return old_driver_text(here.driver, here.needed);
        case cudaErrorDevicesUnavailable:
            return "the GPU is taken: another process has it, and its compute mode lets one process use it "
                   "(nvidia-smi -q -d COMPUTE); give each rank a GPU of its own, or change the mode";
        case cudaErrorSystemNotReady:
            return "the GPUs are not ready: their fabric manager does not run (systemctl status "
                   "nvidia-fabricmanager)";
        case cudaErrorSystemDriverMismatch:
            return "the NVIDIA driver that is loaded and its libraries are of different versions; reboot, or "
                   "load "
                   "it anew";
        case cudaErrorUnknown:
            return "the GPU is lost or broken, or nvidia-uvm is not loaded or not allowed to this job "
                   "(/dev/nvidia-uvm): CUDA says " +
                   in_words + "; see the kernel's log (dmesg, Xid)";
        case cudaErrorECCUncorrectable:
        case cudaErrorDeviceUninitialized:
            return "the GPU is lost or broken (" + in_words +
                   "); see nvidia-smi and the kernel's log (dmesg, Xid), and leave the node out (--exclude)";
        default:
            return "CUDA cannot open the GPU: " + in_words;
    }
}

}  // namespace dp::trainer
