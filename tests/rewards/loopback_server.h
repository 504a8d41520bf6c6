// A small HTTP server on loopback for tests: answers each POST with what a function returns.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace rewards {

struct HttpReply {
  int status = 200;
  std::string body;
  double delay_s = 0;
};

class LoopbackServer {
 public:
  // reply gets the body of a request; it is called by one thread per connection.
  explicit LoopbackServer(std::function<HttpReply(const std::string&)> reply) : reply_(std::move(reply)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    ::listen(listener_, 64);
    socklen_t size = sizeof(address);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this] { accept_all(); });
  }
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;
  ~LoopbackServer() {
    stopping_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    ::close(listener_);
    const std::lock_guard guard(mutex_);
    for (const int fd : connections_) ::shutdown(fd, SHUT_RDWR);
    for (std::thread& thread : threads_) thread.join();
    for (const int fd : connections_) ::close(fd);
  }

  std::string origin() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::string url() const { return origin() + "/score"; }
  std::string last_target() const {  // of the request line: "/score"
    const std::lock_guard guard(target_mutex_);
    return last_target_;
  }
  int requests() const { return requests_; }

 private:
  void accept_all() {
    while (!stopping_) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      const std::lock_guard guard(mutex_);
      connections_.push_back(fd);
      threads_.emplace_back([this, fd] { serve(fd); });
    }
  }

  // One request of the connection after the other; `seen` keeps what came after the last one.
  void serve(int fd) {
    std::string seen;
    for (std::string body; read_request(fd, seen, body);) {
      ++requests_;
      const HttpReply reply = reply_(body);
      for (double waited = 0; waited < reply.delay_s && !stopping_; waited += 0.01) ::usleep(10'000);
      const std::string text = "HTTP/1.1 " + std::to_string(reply.status) +
                               " X\r\nContent-Length: " + std::to_string(reply.body.size()) + "\r\n\r\n" + reply.body;
      for (size_t done = 0; done < text.size();) {
        const ssize_t n = ::send(fd, text.data() + done, text.size() - done, MSG_NOSIGNAL);
        if (n <= 0) return;
        done += static_cast<size_t>(n);
      }
    }
  }

  bool read_request(int fd, std::string& seen, std::string& body) {
    for (;;) {
      const size_t end = seen.find("\r\n\r\n");
      if (end != std::string::npos) {
        const size_t at = seen.find("Content-Length: ");
        const size_t length = at < end ? std::strtoull(seen.c_str() + at + 16, nullptr, 10) : 0;
        if (seen.size() >= end + 4 + length) {
          const size_t from = seen.find(' ') + 1;
          {
            const std::lock_guard guard(target_mutex_);
            last_target_ = seen.substr(from, seen.find(' ', from) - from);
          }
          body = seen.substr(end + 4, length);
          seen.erase(0, end + 4 + length);
          return true;
        }
        if (seen.find("Expect: 100-continue") < end) {
          const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
          seen.erase(seen.find("Expect: 100-continue"), 20);
          ::send(fd, go_on.data(), go_on.size(), MSG_NOSIGNAL);
        }
      }
      char buffer[65536];
      const ssize_t n = ::recv(fd, buffer, sizeof(buffer), 0);
      if (n <= 0) return false;
      seen.append(buffer, static_cast<size_t>(n));
    }
  }

  std::function<HttpReply(const std::string&)> reply_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> requests_ = 0;
  std::thread accepting_;
  std::mutex mutex_;  // of the connections
  mutable std::mutex target_mutex_;
  std::string last_target_;
  std::vector<int> connections_;
  std::vector<std::thread> threads_;
};

}  // namespace rewards
