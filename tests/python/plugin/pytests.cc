// Ops that show the Python tests what reached them.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <chrono>
#include <complex>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "opdock/plugin.hpp"

namespace {

// Where a test asks for it, loading this takes until that file is there, or 20 s and the process.
[[gnu::constructor]] void wait_for_file() {
  const char* path = std::getenv("PYTESTS_LOADS_AFTER");
  for (int i = 0; path != nullptr && access(path, F_OK) != 0; ++i) {
    if (i == 2000) _exit(9);
    usleep(10'000);
  }
}

// Copies element by element, by strides, from dimension `at` on.
void copy(const opdock::Tensor& to, const opdock::Tensor& from, int32_t at, char* out,
          const char* in) {
  const size_t bytes = (from.get()->dtype.bits * from.get()->dtype.lanes + 7u) / 8u;
  if (at == from.ndim()) {
    std::memcpy(out, in, bytes);
    return;
  }
  const int64_t size = static_cast<int64_t>(bytes);
  for (int64_t i = 0; i < from.shape()[at]; ++i) {
    copy(to, from, at + 1, out + i * to.strides()[at] * size, in + i * from.strides()[at] * size);
  }
}

void copy(const opdock::Tensor& to, const opdock::Tensor& from) {
  copy(to, from, 0, static_cast<char*>(to.raw()), static_cast<const char*>(from.raw()));
}

void copy_plan(opdock::Plan& plan, opdock::Tensor x) {
  plan.output(x.like());
}
void copy_run(opdock::Call&, opdock::Results out, opdock::Tensor x) {
  copy(out[0], x);
}

void two_plan(opdock::Plan& plan, opdock::Tensor x, opdock::Tensor y) {
  plan.output(x.like());
  plan.output(y.like());
}
void two_run(opdock::Call&, opdock::Results out, opdock::Tensor x, opdock::Tensor y) {
  copy(out[0], x);
  copy(out[1], y);
  *y.data<float>() += 1;
}

void add(const opdock::Tensor& x, int32_t at, float* data, float by) {
  if (at == x.ndim()) {
    *data += by;
    return;
  }
  for (int64_t i = 0; i < x.shape()[at]; ++i) add(x, at + 1, data + i * x.strides()[at], by);
}
void add_plan(opdock::Plan&, opdock::Tensor, double) {}
void add_run(opdock::Call&, opdock::Results, opdock::Tensor x, double by) {
  add(x, 0, x.data<float>(), static_cast<float>(by));
}

using Tensors = opdock::List<opdock::Tensor>;
using Ints = opdock::List<int64_t>;

void show_plan(opdock::Plan& plan, opdock::Tensor, int64_t, double, bool, std::complex<double>,
               std::string_view, std::optional<opdock::Dtype>, std::optional<opdock::Device>, Ints,
               std::optional<opdock::Tensor>, Tensors, std::optional<const opdock_generator*>) {
  plan.output(opdock::Layout(opdock::dtype_of<double>(), {16}));
}
void show_run(opdock::Call&, opdock::Results out, opdock::Tensor x, int64_t i, double f, bool b,
              std::complex<double> c, std::string_view s, std::optional<opdock::Dtype> d,
              std::optional<opdock::Device> device, Ints sizes, std::optional<opdock::Tensor> y,
              Tensors xs, std::optional<const opdock_generator*> g) {
  double* to = out[0].data<double>();
  const opdock_dtype dtype = d ? static_cast<opdock_dtype>(*d) : opdock_dtype{255, 0, 0};
  const opdock_device where = device ? static_cast<opdock_device>(*device) : opdock_device{-1, -1};
  double total = 0;
  for (size_t k = 0; k < sizes.size(); ++k) total = total * 10 + static_cast<double>(sizes[k]);
  double elements = 0;
  for (size_t k = 0; k < xs.size(); ++k) elements += static_cast<double>(xs[k].numel());
  const double shown[16] = {static_cast<double>(x.numel()),
                            static_cast<double>(i),
                            f,
                            b ? 1.0 : 0.0,
                            c.real(),
                            c.imag(),
                            static_cast<double>(s.size()),
                            static_cast<double>(dtype.code),
                            static_cast<double>(dtype.bits),
                            static_cast<double>(where.type),
                            static_cast<double>(where.index),
                            total,
                            y ? static_cast<double>(y->numel()) : -1.0,
                            elements,
                            g ? static_cast<double>((*g)->seed) : -1.0,
                            g ? static_cast<double>((*g)->offset) : -1.0};
  std::memcpy(to, shown, sizeof shown);
}

void columns_plan(opdock::Plan& plan, opdock::Tensor x) {
  opdock::Layout layout = x.like();
  layout.strides[0] = 1;
  layout.strides[1] = x.size(0);
  plan.output(layout);
}
void columns_run(opdock::Call&, opdock::Results out, opdock::Tensor x) {
  copy(out[0], x);
}

void fail_plan(opdock::Plan&, opdock::Tensor, int64_t status, std::string_view text) {
  throw opdock::Error(static_cast<opdock_status>(status), std::string(text));
}
void fail_run(opdock::Call&, opdock::Results, opdock::Tensor, int64_t, std::string_view) {}

std::mutex meeting;
std::condition_variable arrival;
int present = 0;
int met = 0;

void meet_plan(opdock::Plan& plan, opdock::Tensor, int64_t) {
  plan.output(opdock::Layout(opdock::dtype_of<double>(), {1}));
}
void meet_run(opdock::Call&, opdock::Results out, opdock::Tensor, int64_t milliseconds) {
  std::unique_lock lock(meeting);
  ++present;
  if (present == 2) met = 2;
  arrival.notify_all();
  arrival.wait_for(lock, std::chrono::milliseconds(milliseconds), [] { return met > 0; });
  *out[0].data<double>() = met > 0 ? 1 : 0;
  if (met > 0) --met;
  --present;
}

}  // namespace

OPDOCK_OP(py_copy, copy_plan, nullptr, copy_run)
OPDOCK_OP(py_two, two_plan, nullptr, two_run)
OPDOCK_OP(py_add_, add_plan, nullptr, add_run)
OPDOCK_OP(py_show, show_plan, nullptr, show_run)
OPDOCK_OP(py_columns, columns_plan, nullptr, columns_run)
OPDOCK_OP(py_fail, fail_plan, nullptr, fail_run)
OPDOCK_OP(py_meet, meet_plan, nullptr, meet_run)
