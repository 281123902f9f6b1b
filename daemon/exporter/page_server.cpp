// SPDX-License-Identifier: Apache-2.0
#include "exporter/page_server.hpp"

#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <openssl/err.h>

#include <cerrno>
#include <exception>
#include <string_view>

#include "base/awake.hpp"
#include "base/errno_text.hpp"
#include "base/text.hpp"
#include "common/address.hpp"
#include "loop/log.hpp"

namespace dp {
namespace {

constexpr int kTimeoutSeconds = 10;
constexpr ev_ssize_t kMaxHeaders = 8192, kMaxBody = 0;
constexpr size_t kMostWaiting = 8;
constexpr Time kReadAgain{1000};
constexpr const char* kText = "text/plain; version=0.0.4; charset=utf-8";
constexpr const char* kOpenMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
constexpr const char* kFrontPage =
    "<!DOCTYPE html><html lang=\"en\"><head><title>slurm-dp exporter</title></head>"
    "<body><h1>slurm-dp exporter</h1><p><a href=\"/metrics\">Metrics</a></p></body></html>\n";

std::string tls_error() {
    const unsigned long error = ERR_get_error();
    std::string text(256, '\0');
    ERR_error_string_n(error, text.data(), text.size());
    ERR_clear_error();
    return printable(text.c_str());
}

// Without descriptors the socket stays readable, and libevent would try again at once.
void pause_accepting(evconnlistener* listener, void*) {
    constexpr timeval kPause{0, 100'000};
    evconnlistener_disable(listener);
    event_base_once(
        evconnlistener_get_base(listener), -1, EV_TIMEOUT,
        [](evutil_socket_t, short, void* paused) {
            evconnlistener_enable(static_cast<evconnlistener*>(paused));
        },
        listener, &kPause);
}

}  // namespace

bool ListenAddress::is_loopback() const {
    return address == "::1" || address.starts_with("127.");
}

Try<ListenAddress> parse_listen_address(const std::string& text) {
    const size_t colon = text.rfind(':');
    ListenAddress where;
    const auto port =
        parse_number<uint16_t>(colon == text.npos ? "" : std::string_view(text).substr(colon + 1));
    where.address = text.substr(0, colon);
    const bool has_brackets = where.address.starts_with('[') && where.address.ends_with(']');
    if (has_brackets) where.address = where.address.substr(1, where.address.size() - 2);
    const bool is_v6 = where.address.find(':') != where.address.npos;
    if (!port || *port == 0 || address_bytes(where.address).empty() || is_v6 != has_brackets)
        return fail(printable(text, 80) +
                    ": not an address and a port; give such as 127.0.0.1:9951 or [::1]:9951");
    where.port = *port;
    return where;
}

PageServer::PageServer(event_base* base, std::string config_file, OnAsked on_asked)
    : config_file_(std::move(config_file)), on_asked_(std::move(on_asked)), http_(evhttp_new(base)) {
    evhttp_set_timeout(http_.get(), kTimeoutSeconds);
    evhttp_set_max_headers_size(http_.get(), kMaxHeaders);
    evhttp_set_max_body_size(http_.get(), kMaxBody);
    evhttp_set_allowed_methods(http_.get(), EVHTTP_REQ_GET);
    evhttp_set_gencb(
        http_.get(),
        [](evhttp_request* request, void* self) { static_cast<PageServer*>(self)->serve(request); }, this);
}

PageServer::~PageServer() = default;

Try<void> PageServer::listen(const ListenAddress& where) {
    if (!config_file_.empty()) {
        tls_ = DP_TRY(read_tls(config_file_));
        evhttp_set_bevcb(http_.get(), new_connection, this);
    }
    errno = 0;
    evhttp_bound_socket* const socket =
        evhttp_bind_socket_with_handle(http_.get(), where.address.c_str(), where.port);
    if (!socket)
        return fail("cannot listen on port " + std::to_string(where.port) + " of " + where.address + ": " +
                    errno_text(errno) + "; give another one with --listen");
    evconnlistener_set_error_cb(evhttp_bound_socket_get_listener(socket), pause_accepting);
    return {};
}

Try<PageServer::Tls> PageServer::read_tls(const std::string& config_file) {
    const WebConfig config = DP_TRY(read_web_config(config_file));
    Tls tls(SSL_CTX_new(TLS_server_method()));
    const auto failed = [&](const std::string& file) {
        return fail(printable(config_file) + ": " + printable(file) + ": " + tls_error());
    };
    if (!tls || SSL_CTX_set_min_proto_version(tls.get(), TLS1_2_VERSION) != 1) return failed("TLS 1.2");
    if (SSL_CTX_use_certificate_chain_file(tls.get(), config.certificates.c_str()) != 1)
        return failed(config.certificates);
    if (SSL_CTX_use_PrivateKey_file(tls.get(), config.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(tls.get()) != 1)
        return failed(config.key);
    const char* const authorities = config.client_authorities.c_str();
    if (SSL_CTX_load_verify_locations(tls.get(), authorities, nullptr) != 1) return failed(authorities);
    SSL_CTX_set_client_CA_list(tls.get(), SSL_load_client_CA_file(authorities));
    // Each connection proves itself anew.
    SSL_CTX_set_session_cache_mode(tls.get(), SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(tls.get(), SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(tls.get(), 0);
    SSL_CTX_set_verify(tls.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    return tls;
}

// With the files as they are now, so that a renewed certificate needs no restart.
bufferevent* PageServer::new_connection(event_base* base, void* pointer) {
    auto& self = *static_cast<PageServer*>(pointer);
    if (steady_now() - self.read_at_ >= kReadAgain) self.renew_tls();
    SSL* const session = SSL_new(self.tls_.get());
    bufferevent* const made = session
                                  ? bufferevent_openssl_socket_new(
                                        base, -1, session, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE)
                                  : nullptr;
    // Without one libevent would speak in the clear.
    if (!made) std::terminate();
    return made;
}

void PageServer::renew_tls() {
    read_at_ = steady_now();
    auto renewed = read_tls(config_file_);
    const std::string problem = renewed ? "" : renewed.error().message;
    if (renewed) tls_ = std::move(*renewed);
    if (!problem.empty() && problem != problem_)
        log_line("the exporter keeps its last certificate: " + problem);
    problem_ = problem;
}

void PageServer::serve(evhttp_request* request) {
    const char* const path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    const std::string_view asked = path ? path : "";
    if (asked == "/") return answer(request, "text/html; charset=utf-8", kFrontPage);
    if (asked != "/metrics") return evhttp_send_error(request, HTTP_NOTFOUND, nullptr);
    if (waiting_ >= kMostWaiting) return evhttp_send_error(request, HTTP_SERVUNAVAIL, nullptr);
    const char* const accepts = evhttp_find_header(evhttp_request_get_input_headers(request), "Accept");
    const bool wants_open =
        accepts && std::string_view(accepts).find("application/openmetrics-text") != std::string_view::npos;
    ++waiting_;
    // libevent reads nothing from the connection before the answer, so the request stays, also of a client that has left.
    on_asked_(wants_open ? MetricsFormat::openmetrics : MetricsFormat::prometheus,
              [this, request, wants_open](const std::string& page) {
                  --waiting_;
                  answer(request, wants_open ? kOpenMetrics : kText, page);
              });
}

void PageServer::answer(evhttp_request* request, const char* type, const std::string& body) {
    evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type", type);
    evbuffer_add(evhttp_request_get_output_buffer(request), body.data(), body.size());
    evhttp_send_reply(request, HTTP_OK, nullptr, nullptr);
}

}  // namespace dp
