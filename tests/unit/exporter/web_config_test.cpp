// SPDX-License-Identifier: Apache-2.0
#include "exporter/web_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "exporter/page_server.hpp"

namespace dp {
namespace {

using testing::HasSubstr;

class WebConfigTest : public testing::Test {
 protected:
    std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("web-config-" + std::to_string(getpid()));
    std::string file = folder / "web.yml";

    void SetUp() override {
        std::filesystem::create_directory(folder);
        for (const char* name : {"a.crt", "a.key", "ca.crt"}) std::ofstream(folder / name) << "\n";
    }
    void TearDown() override { std::filesystem::remove_all(folder); }
    Try<WebConfig> read(const std::string& text) const {
        std::ofstream(file) << text;
        return read_web_config(file);
    }
};

TEST_F(WebConfigTest, NamesItsFiles) {
    const auto config =
        read("tls_server_config:\n  cert_file: a.crt\n  key_file: " + (folder / "a.key").string() +
             "\n  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n");
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->certificates, folder / "a.crt");
    EXPECT_EQ(config->key, folder / "a.key");
    EXPECT_EQ(config->client_authorities, folder / "ca.crt");
}

TEST_F(WebConfigTest, SaysWhatIsWrong) {
    const std::string good = "tls_server_config: {cert_file: a.crt, key_file: a.key, client_ca_file: ca.crt";
    const struct {
        std::string text, said;
    } cases[] = {
        {"", "has no tls_server_config"},
        {"tls_server_config:\n", "tls_server_config is empty"},
        {"basic_auth_users: {alice: x}\n", "basic_auth_users: not supported; there is tls_server_config"},
        {"tls_server_config: {cert_file: a.crt, key_file: a.key}\n",
         "tls_server_config has no client_ca_file"},
        {good + ", cipher_suites: x}\n", "cipher_suites: not supported; there are cert_file, key_file"},
        {good + ", client_auth_type: NoClientCert}\n", "only RequireAndVerifyClientCert is supported"},
        {"tls_server_config: {cert_file: none.crt, key_file: a.key, client_ca_file: ca.crt}\n",
         "none.crt: No such file or directory"},
        {"tls_server_config: [a\n", "web.yml: yaml-cpp: error"},
        {"- a\n", "has no tls_server_config"},
        {"tls_server_config: {cert_file: {a: b}}\n", "web.yml: "},
    };
    for (const auto& one : cases) {
        const auto config = read(one.text);
        ASSERT_FALSE(config) << one.text;
        EXPECT_THAT(config.error().message, HasSubstr(one.said)) << one.text;
    }
    EXPECT_THAT(read_web_config(folder / "none.yml").error().message, HasSubstr("No such file or directory"));
}

TEST(ListenAddress, IsANumberedAddressAndAPort) {
    EXPECT_EQ(parse_listen_address("127.0.0.1:9951")->port, 9951);
    EXPECT_EQ(parse_listen_address("[::1]:9951")->address, "::1");
    for (const char* text : {"", "9951", ":9951", "localhost:9951", "127.0.0.1", "127.0.0.1:0",
                             "127.0.0.1:65536", "::1:9951", "[127.0.0.1]:1", "127.0.0.1:9951x"})
        EXPECT_FALSE(parse_listen_address(text)) << text;
}

TEST(ListenAddress, IsOfThisMachineAloneOrNot) {
    for (const char* text : {"127.0.0.1:1", "127.9.9.9:1", "[::1]:1"})
        EXPECT_TRUE(parse_listen_address(text)->is_loopback()) << text;
    for (const char* text : {"0.0.0.0:1", "10.0.0.1:1", "[::]:1", "[fe80::1]:1"})
        EXPECT_FALSE(parse_listen_address(text)->is_loopback()) << text;
}

}  // namespace
}  // namespace dp
