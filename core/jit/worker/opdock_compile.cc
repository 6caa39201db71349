// opdock-compile: compiles the requests that it reads from stdin, as a separate process, until
// stdin ends. core/jit/worker_protocol.h has the messages; stdin and stdout are one socket.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <map>
#include <thread>

#include "base/files.h"
#include "jit/nvrtc.h"
#include "jit/worker_protocol.h"
#include "worker/comgr.h"
#include "worker/hiprtc.h"

namespace {

using namespace opdock;

bool read_all(int fd, void* out, size_t size) {
  char* at = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t count = read(fd, at, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

// Ends this process when the host is gone, even in the middle of a compilation.
void watch(int host) {
  for (;;) {
    pollfd watched{host, POLLRDHUP, 0};
    if (poll(&watched, 1, -1) > 0 && (watched.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
      _exit(0);
    }
  }
}

CompileResult check_arch(const worker::Request& request) {
  CompileResult result;
  result.log = archs_without(request.library, request.job.arch);
  result.ok = result.log.empty();
  if (!result.ok) result.fault = CompileFault::kArch;
  return result;
}

CompileResult compile(const worker::Request& request) {
  if (worker::asks_for_arch(request)) return check_arch(request);
  if (request.backend == Backend::kRocm) return compile_with_hiprtc(request.library, request.job);
  static std::map<std::string, const Nvrtc*> opened;
  const Nvrtc*& compiler = opened[request.library];
  CompileResult result;
  if (compiler == nullptr) compiler = Nvrtc::open(request.library, &result.log);
  if (compiler != nullptr) return compiler->compile(request.job);
  result.fault = CompileFault::kCompiler;
  return result;
}

}  // namespace

int main() {
  // The compiler's output must not mix with the answers.
  const int host = fcntl(1, F_DUPFD_CLOEXEC, 3);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (host < 0 || nothing < 0 || dup2(nothing, 0) < 0 || dup2(2, 1) < 0) return 2;
  std::thread(watch, host).detach();
  worker::Head head;
  while (read_all(host, &head, sizeof head)) {
    if (!plausible(head)) return 3;
    std::string body(head.bytes, '\0');
    if (!read_all(host, body.data(), body.size())) break;
    const auto texts = worker::decode(head, body);
    const auto request = texts ? worker::decode_request(*texts) : std::nullopt;
    if (!request) return 3;
    if (write_all(host, worker::encode(compile(*request))) != 0) break;
    std::fflush(nullptr);
  }
  // Compilers' own destructors are known to crash at exit.
  _exit(0);
}
