// io_uring through its system calls: two arrays are shared with the kernel, one for requests and
// one for results.
// SPDX-License-Identifier: Apache-2.0
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "ring.h"

namespace async_io {
namespace {

// System call numbers, which are the same on every architecture; the C library's headers may be
// older.
constexpr long kSetupCall = 425;
constexpr long kEnterCall = 426;

class Uring : public Ring {
 public:
  explicit Uring(uint32_t depth) : vectors_(depth) {}
  ~Uring() override {
    if (requests_ != MAP_FAILED) munmap(requests_, requests_size_);
    if (rings_ != MAP_FAILED) munmap(rings_, rings_size_);
    if (fd_ >= 0) close(fd_);
  }

  // Returns false, and why, if the kernel refuses.
  bool set_up(std::string* why_not) {
    io_uring_params params{};
    fd_ = static_cast<int>(syscall(kSetupCall, static_cast<uint32_t>(vectors_.size()), &params));
    if (fd_ < 0) {
      *why_not = "io_uring_setup: " + error_text(errno);
      if (errno == EPERM)
        *why_not +=
            "; a container's seccomp profile or the sysctl kernel.io_uring_disabled forbids it";
      if (errno == ENOMEM)
        *why_not += "; before Linux 5.12 the limit of locked memory (ulimit -l) counts";
      return false;
    }
    if ((params.features & IORING_FEAT_SINGLE_MMAP) == 0) {
      *why_not = "this kernel's is older than Linux 5.4";
      return false;
    }
    rings_size_ = std::max<size_t>(params.sq_off.array + params.sq_entries * sizeof(uint32_t),
                                   params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
    rings_ = map(rings_size_, IORING_OFF_SQ_RING);
    requests_size_ = params.sq_entries * sizeof(io_uring_sqe);
    requests_ = map(requests_size_, IORING_OFF_SQES);
    if (rings_ == MAP_FAILED || requests_ == MAP_FAILED) {
      *why_not = "mmap of the ring: " + error_text(errno);
      return false;
    }
    request_tail_ = at<uint32_t>(params.sq_off.tail);
    request_mask_ = *at<uint32_t>(params.sq_off.ring_mask);
    request_order_ = at<uint32_t>(params.sq_off.array);
    result_head_ = at<uint32_t>(params.cq_off.head);
    result_tail_ = at<uint32_t>(params.cq_off.tail);
    result_mask_ = *at<uint32_t>(params.cq_off.ring_mask);
    results_ = at<io_uring_cqe>(params.cq_off.cqes);
    return true;
  }

  uint32_t submit(const uint32_t* slots, uint32_t count, const Piece* pieces) override {
    uint32_t tail = *request_tail_;
    for (uint32_t i = 0; i < count; ++i, ++tail) write_request(tail, slots[i], pieces[slots[i]]);
    __atomic_store_n(request_tail_, tail, __ATOMIC_RELEASE);
    uint32_t left = count;
    while (left > 0) {
      const long taken = syscall(kEnterCall, fd_, left, 0, 0, nullptr, 0);
      if (taken > 0)
        left -= static_cast<uint32_t>(taken);
      else if (taken == 0 || errno != EINTR)
        break;
    }
    // The kernel looks at requests only during the call, so requests that it did not accept can be
    // withdrawn.
    __atomic_store_n(request_tail_, tail - left, __ATOMIC_RELEASE);
    return count - left;
  }

  uint32_t reap(Completion* ended, uint32_t room, bool wait) override {
    uint32_t head = *result_head_;
    uint32_t tail = __atomic_load_n(result_tail_, __ATOMIC_ACQUIRE);
    while (head == tail && wait) {
      if (syscall(kEnterCall, fd_, 0, 1, IORING_ENTER_GETEVENTS, nullptr, 0) < 0 &&
          errno != EINTR) {
        // For example, the program has closed the descriptor. Results arrive anyway.
        const timespec millisecond{0, 1000000};
        nanosleep(&millisecond, nullptr);
      }
      tail = __atomic_load_n(result_tail_, __ATOMIC_ACQUIRE);
    }
    uint32_t count = 0;
    for (; head != tail && count < room; ++head, ++count) {
      const io_uring_cqe& result = results_[head & result_mask_];
      ended[count] = {static_cast<uint32_t>(result.user_data), result.res};
    }
    __atomic_store_n(result_head_, head, __ATOMIC_RELEASE);
    return count;
  }

  // The destructor unmaps and closes only the child's own view; the ring itself stays.
  void leave_to_parent() override {}

 private:
  void* map(size_t size, uint64_t what) {
    return mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_,
                static_cast<off_t>(what));
  }
  template <class T>
  T* at(uint32_t offset) {
    return reinterpret_cast<T*>(static_cast<char*>(rings_) + offset);
  }

  void write_request(uint32_t place, uint32_t slot, const Piece& piece) {
    const uint32_t index = place & request_mask_;
    vectors_[slot] = {piece.memory(), piece.bytes};
    io_uring_sqe& request = static_cast<io_uring_sqe*>(requests_)[index];
    request = {};
    // Vectors with one element work in every kernel that has io_uring.
    request.opcode = piece.job->request.is_write ? IORING_OP_WRITEV : IORING_OP_READV;
    request.fd = piece.job->fd;
    request.off = piece.offset();
    request.addr = reinterpret_cast<uintptr_t>(&vectors_[slot]);
    request.len = 1;
    request.user_data = slot;
    request_order_[index] = index;
  }

  std::vector<iovec> vectors_;  // one per slot: some kernels read them after the call
  int fd_ = -1;
  void* rings_ = MAP_FAILED;
  size_t rings_size_ = 0;
  void* requests_ = MAP_FAILED;
  size_t requests_size_ = 0;
  uint32_t* request_tail_ = nullptr;
  uint32_t request_mask_ = 0;
  uint32_t* request_order_ = nullptr;
  uint32_t* result_head_ = nullptr;
  uint32_t* result_tail_ = nullptr;
  uint32_t result_mask_ = 0;
  io_uring_cqe* results_ = nullptr;
};

}  // namespace

std::unique_ptr<Ring> make_uring(uint32_t depth, std::string* why_not) {
  auto ring = std::make_unique<Uring>(depth);
  if (!ring->set_up(why_not)) return nullptr;
  return ring;
}

}  // namespace async_io
