// SPDX-License-Identifier: Apache-2.0
//
// A made-up /sys and /proc in a folder of its own, as the drivers of accelerators show themselves there.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace dp {

class FakeTree {
 public:
    FakeTree() {
        std::string name = (std::filesystem::temp_directory_path() / "dp-tree-XXXXXX").string();
        if (mkdtemp(name.data())) root_ = name;
        EXPECT_FALSE(root_.empty());
    }
    FakeTree(const FakeTree&) = delete;
    FakeTree& operator=(const FakeTree&) = delete;
    ~FakeTree() {
        std::error_code ignored;
        if (!root_.empty()) std::filesystem::remove_all(root_, ignored);
    }

    const std::string& root() const { return root_; }

    void file(const std::string& path, const std::string& text) const {
        const std::filesystem::path whole = root_ + path;
        std::filesystem::create_directories(whole.parent_path());
        std::ofstream(whole) << text;
    }
    void folder(const std::string& path) const { std::filesystem::create_directories(root_ + path); }
    void link(const std::string& path, const std::string& target) const {
        const std::filesystem::path whole = root_ + path;
        std::filesystem::create_directories(whole.parent_path());
        std::filesystem::create_directory_symlink(root_ + target, whole);
    }

    // What the bus says of every device.
    void pci(const std::string& address, int numa, const std::string& cpus) const {
        const std::string folder = "/sys/bus/pci/devices/" + address;
        file(folder + "/numa_node", std::to_string(numa) + "\n");
        file(folder + "/local_cpulist", cpus + "\n");
    }
    void nvidia(const std::string& address, uint32_t minor, const std::string& model = "NVIDIA H200") const {
        file("/proc/driver/nvidia/gpus/" + address + "/information",
             "Model: \t\t " + model +
                 "\nIRQ:   \t\t 120\nGPU UUID: \t GPU-8bd5c3f1\n"
                 "Bus Type: \t PCIe\nBus Location: \t " +
                 address + "\nDevice Minor: \t " + std::to_string(minor) +
                 "\nGPU Firmware: \t 550.54.15\nGPU Excluded:\t No\n");
    }
    void mig(uint32_t gpu, uint32_t gi, uint32_t ci, uint32_t cap) const {
        const std::string folder =
            "/proc/driver/nvidia/capabilities/gpu" + std::to_string(gpu) + "/mig/gi" + std::to_string(gi);
        file(folder + "/access", "DeviceFileMinor: 1\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
        file(folder + "/ci" + std::to_string(ci) + "/access",
             "DeviceFileMinor: " + std::to_string(cap) + "\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
    }
    // A card of Intel's; the folders of its tiles are the test's to add.
    void intel(uint32_t card, const std::string& address, uint32_t render,
               const std::string& pci_class = "0x038000") const {
        const std::string device = "/sys/devices/pci0000:00/" + address;
        file(device + "/vendor", "0x8086\n");
        file(device + "/class", pci_class + "\n");
        folder(device + "/drm/renderD" + std::to_string(render));
        link("/sys/class/drm/card" + std::to_string(card) + "/device", device);
    }
    void kfd(uint32_t node, uint32_t simd_count, uint32_t location, uint32_t render,
             const std::string& name = "gfx942", uint32_t domain = 0) const {
        const std::string folder = "/sys/class/kfd/kfd/topology/nodes/" + std::to_string(node);
        file(folder + "/name", name + "\n");
        file(folder + "/properties", "cpu_cores_count " + std::to_string(simd_count == 0 ? 96 : 0) +
                                         "\nsimd_count " + std::to_string(simd_count) +
                                         "\nvendor_id 4098\nlocation_id " + std::to_string(location) +
                                         "\ndomain " + std::to_string(domain) + "\ndrm_render_minor " +
                                         std::to_string(render) + "\n");
    }

 private:
    std::string root_;
};

}  // namespace dp
