// SPDX-License-Identifier: Apache-2.0
#include "exporter/web_config.hpp"

#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <filesystem>

#include "base/errno_text.hpp"
#include "base/text.hpp"

namespace dp {
namespace {

constexpr const char* kSection = "tls_server_config";
constexpr std::string_view kClientsProveThemselves = "RequireAndVerifyClientCert";

struct Key {
    const char* name;
    std::string WebConfig::*file;
};
constexpr Key kFiles[] = {{"cert_file", &WebConfig::certificates},
                          {"key_file", &WebConfig::key},
                          {"client_ca_file", &WebConfig::client_authorities}};

Try<void> set(WebConfig& config, const std::string& key, const std::string& value,
              const std::filesystem::path& directory) {
    if (key == "client_auth_type") {
        if (value == kClientsProveThemselves) return {};
        return fail("client_auth_type: " + printable(value, 40) + ": only " +
                    std::string(kClientsProveThemselves) + " is supported");
    }
    for (const Key& one : kFiles)
        if (key == one.name) {
            config.*one.file = directory / value;
            return {};
        }
    return fail(printable(key, 40) +
                ": not supported; there are cert_file, key_file, client_ca_file and client_auth_type");
}

Try<WebConfig> read(const YAML::Node& file, const std::filesystem::path& directory) {
    WebConfig config;
    if (!file.IsMap()) return fail(std::string("has no ") + kSection);
    for (const auto& section : file)
        if (section.first.Scalar() != kSection)
            return fail(printable(section.first.Scalar(), 40) + ": not supported; there is " + kSection);
    const YAML::Node tls = file[kSection];
    if (!tls.IsMap()) return fail(std::string(kSection) + " is empty");
    for (const auto& entry : tls)
        DP_TRY(set(config, entry.first.Scalar(), entry.second.as<std::string>(), directory));
    for (const Key& one : kFiles) {
        const std::string& path = config.*one.file;
        if (path.empty()) return fail(std::string(kSection) + " has no " + one.name);
        if (access(path.c_str(), R_OK) != 0)
            return fail(std::string(one.name) + ": " + printable(path) + ": " + errno_text(errno));
    }
    return config;
}

}  // namespace

Try<WebConfig> read_web_config(const std::string& path) {
    if (access(path.c_str(), R_OK) != 0) return fail(printable(path) + ": " + errno_text(errno));
    try {
        auto config = read(YAML::LoadFile(path), std::filesystem::path(path).parent_path());
        if (!config) return fail(printable(path) + ": " + config.error().message);
        return config;
    } catch (const YAML::Exception& error) {
        return fail(printable(path) + ": " + printable(error.what()));
    }
}

}  // namespace dp
