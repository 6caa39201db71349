// Linux AIO through its system calls: older than io_uring, and often allowed where io_uring is
// forbidden.
// SPDX-License-Identifier: Apache-2.0
#include <linux/aio_abi.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "ring.h"

namespace async_io {
namespace {

class Aio : public Ring {
 public:
  explicit Aio(uint32_t depth) : controls_(depth), handed_(depth), events_(depth) {}
  ~Aio() override {
    if (context_ != 0) syscall(SYS_io_destroy, context_);
  }

  bool set_up(std::string* why_not) {
    if (syscall(SYS_io_setup, static_cast<unsigned>(controls_.size()), &context_) == 0) return true;
    *why_not = "io_setup: " + error_text(errno);
    if (errno == EAGAIN) *why_not += "; the sysctl fs.aio-max-nr limits all processes together";
    if (errno == EPERM || errno == ENOSYS)
      *why_not += "; a container's seccomp profile forbids it, or the kernel lacks it";
    return false;
  }

  uint32_t submit(const uint32_t* slots, uint32_t count, const Piece* pieces) override {
    for (uint32_t i = 0; i < count; ++i) {
      const Piece& piece = pieces[slots[i]];
      iocb& control = controls_[slots[i]];
      control = {};
      control.aio_lio_opcode = piece.job->request.is_write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
      control.aio_fildes = static_cast<uint32_t>(piece.job->fd);
      control.aio_buf = reinterpret_cast<uintptr_t>(piece.memory());
      control.aio_nbytes = piece.bytes;
      control.aio_offset = static_cast<int64_t>(piece.offset());
      control.aio_data = slots[i];
      handed_[i] = &control;
    }
    uint32_t taken = 0;
    while (taken < count) {
      const long result =
          syscall(SYS_io_submit, context_, static_cast<long>(count - taken), &handed_[taken]);
      if (result > 0)
        taken += static_cast<uint32_t>(result);
      else if (result == 0 || errno != EINTR)
        break;
    }
    return taken;
  }

  uint32_t reap(Completion* ended, uint32_t room, bool wait) override {
    const long most = static_cast<long>(std::min<size_t>(room, events_.size()));
    timespec at_once{};
    long count;
    while ((count = syscall(SYS_io_getevents, context_, wait ? 1L : 0L, most, events_.data(),
                            wait ? nullptr : &at_once)) <= 0) {
      if (!wait) return 0;
      if (count < 0 && errno != EINTR) {
        const timespec millisecond{0, 1000000};
        nanosleep(&millisecond, nullptr);
      }
    }
    for (long i = 0; i < count; ++i)
      ended[i] = {static_cast<uint32_t>(events_[i].data), events_[i].res};
    return static_cast<uint32_t>(count);
  }

  // AIO contexts belong to a process's memory, so the child has none to destroy.
  void leave_to_parent() override { context_ = 0; }

 private:
  std::vector<iocb> controls_;  // one per slot
  std::vector<iocb*> handed_;
  std::vector<io_event> events_;
  aio_context_t context_ = 0;
};

}  // namespace

std::unique_ptr<Ring> make_aio(uint32_t depth, std::string* why_not) {
  auto ring = std::make_unique<Aio>(depth);
  if (!ring->set_up(why_not)) return nullptr;
  return ring;
}

}  // namespace async_io
