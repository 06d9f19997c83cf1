// Requests and responses of the HTTP ports.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace espalier::rt::http {

/// The part of a request before its body. Values of missing fields are empty.
struct Head {
  std::string method, path; ///< the path has neither a query nor a final slash
  std::string host, origin, authorization, contentType, contentEncoding;
  std::string requestedFields; ///< Access-Control-Request-Headers
  std::string localAddress;    ///< the address of this machine to which the client has connected
  bool hasBody = false;        ///< announces a body of at least one byte
};

/// A share of the memory that the bodies of all requests may take.
class BodyShare {
public:
  explicit BodyShare(std::atomic<size_t> *total = nullptr) : total(total) {}
  BodyShare(BodyShare &&other) noexcept
      : total(std::exchange(other.total, nullptr)), bytes(std::exchange(other.bytes, 0)) {}
  BodyShare &operator=(BodyShare &&other) noexcept {
    std::swap(total, other.total);
    std::swap(bytes, other.bytes);
    return *this;
  }
  ~BodyShare() {
    if (total)
      *total -= bytes;
  }

  /// Grows the share to `size` bytes. Returns false if all shares are then above `most`.
  bool growTo(size_t size, size_t most) {
    *total += size - bytes;
    bytes = size;
    return *total <= most;
  }

private:
  std::atomic<size_t> *total; ///< of all shares
  size_t bytes = 0;
};

/// A request with its whole body.
struct Request {
  Head head;
  std::string body;
  BodyShare share; ///< of the body
};

/// Names and values of header fields.
using Fields = std::vector<std::pair<std::string, std::string>>;

struct Response {
  int status = 200;
  std::string type = ""; ///< Content-Type; empty: no body
  std::string body = "";
  Fields fields = {}; ///< others than those that the server writes itself
};

/// Why a request is not answered.
struct Refusal {
  int status;
  std::string message;
};

} // namespace espalier::rt::http
