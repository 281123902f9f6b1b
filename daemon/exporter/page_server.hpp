// SPDX-License-Identifier: Apache-2.0
//
// The exporter's HTTP server: libevent's, with OpenSSL's TLS where clients are elsewhere.
#pragma once

#include <event2/http.h>
#include <openssl/ssl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/failure.hpp"
#include "engine/metrics.hpp"
#include "engine/time.hpp"
#include "exporter/web_config.hpp"

namespace dp {

// Where it listens: "127.0.0.1:9951", "[::1]:9951".
struct ListenAddress {
    std::string address;  // numeric
    uint16_t port = 0;
    bool is_loopback() const;
};
Try<ListenAddress> parse_listen_address(const std::string& text);

class PageServer {
 public:
    // Makes the page and calls `answer` with it, at once or later.
    using Answer = std::function<void(const std::string& page)>;
    using OnAsked = std::function<void(MetricsFormat format, Answer answer)>;

    // `config_file`: with TLS, read again for new connections; "": none.
    PageServer(event_base* base, std::string config_file, OnAsked on_asked);
    ~PageServer();
    PageServer(const PageServer&) = delete;
    PageServer& operator=(const PageServer&) = delete;

    Try<void> listen(const ListenAddress& where);

 private:
    struct FreeHttp {
        void operator()(evhttp* h) const { evhttp_free(h); }
    };
    struct FreeTls {
        void operator()(SSL_CTX* c) const { SSL_CTX_free(c); }
    };
    using Tls = std::unique_ptr<SSL_CTX, FreeTls>;

    std::string config_file_;
    OnAsked on_asked_;
    Tls tls_;
    size_t waiting_ = 0;   // requests that an answer is still for
    Time read_at_{};       // when the files of tls_ were looked at last
    std::string problem_;  // with them, as was told
    std::unique_ptr<evhttp, FreeHttp> http_;

    static Try<Tls> read_tls(const std::string& config_file);
    void renew_tls();
    static bufferevent* new_connection(event_base* base, void* self);
    void serve(evhttp_request* request);
    static void answer(evhttp_request* request, const char* type, const std::string& body);
};

}  // namespace dp
