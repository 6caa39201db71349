// opdock/plugin.hpp: plugins in C++17. Typed arguments, checks with texts, exceptions turned into
// statuses; header-only, needs nothing but the standard library.
// SPDX-License-Identifier: Apache-2.0
//
//   static void plan(opdock::Plan& plan, opdock::Tensor x, double a) {
//     opdock::check(x, "x").dtype(opdock::dtype_of<float>()).contiguous();
//     plan.output(x.like());
//   }
//   static void run(opdock::Call& call, opdock::Results results, opdock::Tensor x, double a) { … }
//   OPDOCK_OP(scale, plan, nullptr, run)
//
// The first parameters are followed by the schema's, in order:
//   Tensor, Tensor(a!)  Tensor                 Tensor?, int? …  std::optional<Tensor>, …
//   int                 int64_t                Tensor[], int[]  List<Tensor>, List<int64_t>, or a
//   float               double (or float)                       std::vector, which copies
//   bool                bool                   Tensor?[]        List<std::optional<Tensor>>
//   str                 std::string_view       Stream           Stream
//   complex             std::complex<double>   Generator        const opdock_generator*
//   ScalarType          Dtype                  Object(type)     Object<T>
//   Device              Device
// A plugin that takes a complex number includes <complex> itself.
#ifndef OPDOCK_PLUGIN_HPP_
#define OPDOCK_PLUGIN_HPP_

#include <cstddef>
#include <limits>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "opdock/cancel.h"
#include "opdock/object.hpp"
#include "opdock/parallel.h"
#include "opdock/retain.h"
#include "opdock/tensor.hpp"
#include "opdock/tuning.h"

namespace opdock {

struct Stream {
  void* handle;  // CUstream or hipStream_t
};

// An argument whose memory a plugin keeps, made by Call::retain(). Movable; may be released on any
// thread.
class Retained {
 public:
  Retained() = default;
  Retained(const opdock_retain* table, opdock_retained* retained)
      : table_(table), retained_(retained) {}
  Retained(Retained&& other) noexcept { swap(other); }
  Retained& operator=(Retained&& other) noexcept {
    Retained(std::move(other)).swap(*this);
    return *this;
  }
  ~Retained() {
    if (retained_ != nullptr) table_->release(retained_);
  }

 private:
  void swap(Retained& other) {
    std::swap(table_, other.table_);
    std::swap(retained_, other.retained_);
  }
  const opdock_retain* table_ = nullptr;
  opdock_retained* retained_ = nullptr;
};

// ----------------------------------------------------------------------------------- arguments

template <class T>
class List;

namespace detail {

[[noreturn]] inline void wrong_tag(uint32_t found, const char* wanted) {
  throw Error(OPDOCK_INTERNAL,
              concat("an argument has value tag ", found, ", and the plugin's function takes ",
                     wanted, "; make its parameters those of the schema"));
}

// Recognises std::complex<double> without <complex>, which takes as long to compile as the rest of
// this header.
template <class T, class = void>
struct IsComplex : std::false_type {};
template <class T>
struct IsComplex<T, std::void_t<decltype(std::declval<T&>().real()), typename T::value_type>>
    : std::is_same<typename T::value_type, double> {};

template <class T, class = void>
struct Reader {
  static_assert(sizeof(T) == 0, "no schema type is read as this parameter type: see plugin.hpp");
};

inline const opdock_value& expect(const opdock_value& value, uint32_t tag, const char* wanted) {
  if (value.tag != tag) wrong_tag(value.tag, wanted);
  return value;
}

template <>
struct Reader<Tensor> {
  static Tensor read(const opdock_value& v) {
    return Tensor(expect(v, OPDOCK_TAG_TENSOR, "a Tensor").as.tensor, v.flags);
  }
};
template <>
struct Reader<int64_t> {
  static int64_t read(const opdock_value& v) { return expect(v, OPDOCK_TAG_INT, "an int").as.i64; }
};
template <>
struct Reader<double> {
  static double read(const opdock_value& v) {
    return expect(v, OPDOCK_TAG_FLOAT, "a float").as.f64;
  }
};
template <>
struct Reader<float> {
  static float read(const opdock_value& v) { return static_cast<float>(Reader<double>::read(v)); }
};
template <>
struct Reader<bool> {
  static bool read(const opdock_value& v) {
    return expect(v, OPDOCK_TAG_BOOL, "a bool").as.i64 != 0;
  }
};
template <>
struct Reader<std::string_view> {
  static std::string_view read(const opdock_value& v) {
    const opdock_string* text = expect(v, OPDOCK_TAG_STRING, "a str").as.str;
    return {text->data, static_cast<size_t>(text->size)};
  }
};
template <class T>
struct Reader<T, std::enable_if_t<IsComplex<T>::value>> {
  static T read(const opdock_value& v) {
    const double* parts = expect(v, OPDOCK_TAG_COMPLEX, "a complex number").as.c128;
    return T(parts[0], parts[1]);
  }
};
template <>
struct Reader<Dtype> {
  static Dtype read(const opdock_value& v) {
    return expect(v, OPDOCK_TAG_DTYPE, "a dtype").as.dtype;
  }
};
template <>
struct Reader<Device> {
  static Device read(const opdock_value& v) {
    return expect(v, OPDOCK_TAG_DEVICE, "a device").as.device;
  }
};
template <>
struct Reader<Stream> {
  static Stream read(const opdock_value& v) {
    return Stream{expect(v, OPDOCK_TAG_STREAM, "a stream").as.ptr};
  }
};
template <>
struct Reader<const opdock_generator*> {
  static const opdock_generator* read(const opdock_value& v) {
    return expect(v, OPDOCK_TAG_GENERATOR, "a generator").as.generator;
  }
};
template <class T>
struct Reader<Object<T>> {
  static Object<T> read(const opdock_value& v) {
    return Object<T>(expect(v, OPDOCK_TAG_OBJECT, "an object").as.object);
  }
};
template <class T>
struct Reader<std::optional<T>> {
  static std::optional<T> read(const opdock_value& v) {
    if (v.tag == OPDOCK_TAG_NONE) return std::nullopt;
    return Reader<T>::read(v);
  }
};
template <class T>
struct Reader<List<T>> {
  static List<T> read(const opdock_value& v) {
    return List<T>(expect(v, OPDOCK_TAG_LIST, "a list").as.list);
  }
};
template <class T>
struct Reader<std::vector<T>> {
  static std::vector<T> read(const opdock_value& v) {
    List<T> list = Reader<List<T>>::read(v);
    std::vector<T> items;
    items.reserve(list.size());
    for (size_t i = 0; i < list.size(); ++i) items.push_back(list[i]);
    return items;
  }
};

}  // namespace detail

// A list argument, read in place.
template <class T>
class List {
 public:
  explicit List(const opdock_list* list) : list_(list) {}
  size_t size() const { return static_cast<size_t>(list_->count); }
  bool empty() const { return size() == 0; }
  T operator[](size_t i) const { return detail::Reader<T>::read(list_->data[i]); }

 private:
  const opdock_list* list_;
};

// -------------------------------------------------------------------------- what a phase is given

// Base of Plan and Call, which plan, prepare and run get: where the op runs and how.
class CallBase {
 public:
  explicit CallBase(const opdock_call* call) : call_(call) {}

  const opdock_call* get() const { return call_; }
  Device device() const { return call_->device; }
  bool is_cpu() const { return call_->device.type == OPDOCK_CPU; }
  bool is_cuda() const { return call_->device.type == OPDOCK_CUDA; }
  bool is_rocm() const { return call_->device.type == OPDOCK_ROCM; }
  const opdock_device_facts& facts() const { return *call_->facts; }
  // level: 0 debug, 1 info, 2 warning, 3 error.
  void log(int32_t level, const std::string& message) const {
    if (OPDOCK_HAS(call_->host, opdock_host, log) && call_->host->log != nullptr) {
      call_->host->log(call_, level, message.c_str());
    }
  }
  // Returns which of the ways 0 to count - 1 to launch the op was measured to be the fastest on
  // this device, or -1 if the plugin has to choose. question: see opdock_tuning.choice.
  int32_t tuned(uint64_t question, uint32_t count) const {
    const opdock_tuning* table = extension<opdock_tuning>(OPDOCK_TUNING_1);
    return table == nullptr ? -1 : table->choice(call_, question, count);
  }
  // Returns the host's table of that name and revision, of type Table, or NULL if it has none.
  template <class Table>
  const Table* extension(const char* id) const {
    if (!OPDOCK_HAS(call_->host, opdock_host, get_extension) || !call_->host->get_extension) {
      return nullptr;
    }
    return static_cast<const Table*>(call_->host->get_extension(id));
  }

 protected:
  const opdock_call* call_;
};

// The first parameter of plan, which receives what the call needs.
class Plan : public CallBase {
 public:
  Plan(const opdock_call* call, opdock_plan* plan) : CallBase(call), plan_(plan) {}

  // Describes the next fresh tensor of the results: that of a Tensor, that of a Tensor? that is not
  // None, or the next one of a Tensor[].
  void output(const Layout& layout) {
    if (given_ >= plan_->num_outputs) {
      throw Error(OPDOCK_INTERNAL,
                  detail::concat("plan describes more fresh tensors than the ", plan_->num_outputs,
                                 " that the shape rules give"));
    }
    plan_->outputs[given_++] = layout;
  }
  // Scratch memory on the op's device. alignment: a power of two, or 0 for 256.
  void workspace(uint64_t bytes, uint64_t alignment = 0) {
    plan_->workspace_bytes = bytes;
    plan_->workspace_alignment = alignment;
  }
  // Sets how many random numbers run draws from the call's generator. The op must have the flag
  // `random`.
  void random_numbers(uint64_t count) { plan_->random_numbers = count; }
  // Passes a value of at most 64 bytes to run, where Call::state<T>() reads it.
  template <class T>
  void state(const T& value) {
    static_assert(
        std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(plan_->state) && alignof(T) <= 8,
        "state is at most 64 bytes, trivially copyable, and aligned to at most 8");
    std::memcpy(plan_->state, &value, sizeof value);
  }
  // Throws if plan has described fewer fresh tensors than the shape rules give; called after plan.
  void finish() const {
    if (given_ != plan_->num_outputs) {
      throw Error(OPDOCK_INTERNAL,
                  detail::concat("plan describes ", given_,
                                 " fresh tensors, and the shape rules give ", plan_->num_outputs));
    }
  }

 private:
  opdock_plan* plan_;
  uint32_t given_ = 0;
};

// The results of the op, in the schema's order. Tensors are allocated already; run sets numbers,
// bools and objects.
class Results {
 public:
  Results(opdock_value* results, uint32_t count) : results_(results), count_(count) {}
  size_t size() const { return count_; }
  // Result i, of type Tensor.
  Tensor operator[](size_t i) const { return detail::Reader<Tensor>::read(at(i)); }
  // Result i, of type Tensor?: the shape rule decides whether there is a tensor.
  std::optional<Tensor> optional(size_t i) const {
    return detail::Reader<std::optional<Tensor>>::read(at(i));
  }
  // Result i, of type Tensor[].
  List<Tensor> list(size_t i) const { return detail::Reader<List<Tensor>>::read(at(i)); }

  void set(size_t i, int64_t value) const { put(i, OPDOCK_TAG_INT).i64 = value; }
  void set(size_t i, double value) const { put(i, OPDOCK_TAG_FLOAT).f64 = value; }
  void set(size_t i, bool value) const { put(i, OPDOCK_TAG_BOOL).i64 = value ? 1 : 0; }
  // Transfers the reference to the caller.
  template <class T>
  void set(size_t i, Object<T>&& object) const {
    put(i, OPDOCK_TAG_OBJECT).object = object.release();
  }

 private:
  opdock_value& at(size_t i) const {
    if (i >= count_) throw Error(OPDOCK_INTERNAL, detail::concat("result ", i, " of ", count_));
    return results_[i];
  }
  decltype(opdock_value::as)& put(size_t i, uint32_t tag) const {
    opdock_value& value = at(i);
    value.tag = tag;
    value.flags = 0;
    return value.as;
  }

  opdock_value* results_;
  uint32_t count_;
};

// Sizes of a grid, block or cluster; one to three numbers.
struct Dim3 {
  uint32_t v[3] = {1, 1, 1};
  template <class X, class = std::enable_if_t<std::is_integral_v<X>>>
  Dim3(X x) : v{size(x), 1, 1} {}
  template <class X, class Y>
  Dim3(X x, Y y) : v{size(x), size(y), 1} {}
  template <class X, class Y, class Z>
  Dim3(X x, Y y, Z z) : v{size(x), size(y), size(z)} {}

 private:
  template <class X>
  static uint32_t size(X x) {
    if (static_cast<int64_t>(x) < 0 || static_cast<uint64_t>(x) > UINT32_MAX) {
      throw Error(OPDOCK_UNSUPPORTED,
                  detail::concat("a launch of ", x, " blocks or threads; at most 2^32 - 1"));
    }
    return static_cast<uint32_t>(x);
  }
};

// How a kernel is launched: `{blocks, threads}` or `{blocks, threads, shared_bytes}` suffices.
struct Launch {
  Dim3 grid;
  Dim3 block;
  uint32_t shared_bytes = 0;  // dynamic shared memory
  Dim3 cluster = {0, 0, 0};   // blocks per cluster; 0: none
  uint32_t flags = 0;         // OPDOCK_LAUNCH_…
};

// The first parameter of run and prepare.
class Call : public CallBase {
 public:
  using CallBase::CallBase;

  void* stream() const { return call_->stream; }
  void* workspace() const { return call_->workspace; }
  uint64_t workspace_bytes() const { return call_->workspace_bytes; }
  // Allocates more workspace, in stream order, for an op with OPDOCK_OP_MAY_ALLOCATE.
  void* more_workspace(uint64_t bytes, uint64_t alignment = 0) const {
    void* memory = nullptr;
    done(call_->host->workspace(call_, bytes, alignment, &memory));
    return memory;
  }
  // Returns the value that plan stored with Plan::state().
  template <class T>
  const T& state() const {
    return *static_cast<const T*>(call_->state);
  }
  const opdock_generator* generator() const { return call_->generator; }

  // Returns kernel `index` of the plugin's list. The first call loads or compiles it (see
  // opdock_host.kernel); later calls are a quick look-up.
  opdock_kernel* kernel(uint32_t index) const {
    opdock_kernel* found = nullptr;
    done(call_->host->kernel(call_, index, &found));
    return found;
  }
  // Launches on the call's stream. The arguments' types must be the kernel's own: a float where it
  // takes a float, int64_t where it takes a long long.
  template <class... Args>
  void launch(opdock_kernel* kernel, const Launch& how, Args... args) const {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&args))..., nullptr};
    opdock_launch launch = {};
    launch.struct_size = sizeof launch;
    launch.flags = how.flags;
    for (int i = 0; i < 3; ++i) {
      launch.grid[i] = how.grid.v[i];
      launch.block[i] = how.block.v[i];
      launch.cluster[i] = how.cluster.v[i];
    }
    launch.shared_bytes = how.shared_bytes;
    launch.args = pointers;
    launch.num_args = sizeof...(args);
    done(call_->host->launch(call_, kernel, &launch));
  }
  // Launches kernel `index` of the plugin's list.
  template <class... Args>
  void launch(uint32_t index, const Launch& how, Args... args) const {
    launch(kernel(index), how, args...);
  }

  // Calls body(begin, end) on disjoint ranges that make up [0, count), each of at least `grain`
  // items except the last, on the host's threads; waits for all. The first exception is rethrown.
  template <class Body>
  void parallel_for(int64_t count, int64_t grain, Body&& body) const {
    if (count <= 0) return;
    const opdock_parallel* threads =
        count > grain ? extension<opdock_parallel>(OPDOCK_PARALLEL_2) : nullptr;
    if (threads == nullptr) {
      body(int64_t{0}, count);
      return;
    }
    struct Context {
      std::remove_reference_t<Body>* body;
      bool failed = false;  // accessed atomically
      std::exception_ptr error;
    } context;
    context.body = &body;
    threads->parallel_for(
        call_, static_cast<uint64_t>(count), static_cast<uint64_t>(grain < 1 ? 1 : grain),
        [](void* data, uint64_t begin, uint64_t end) {
          Context& shared = *static_cast<Context*>(data);
          try {
            (*shared.body)(static_cast<int64_t>(begin), static_cast<int64_t>(end));
          } catch (...) {
            if (!__atomic_exchange_n(&shared.failed, true, __ATOMIC_RELAXED))
              shared.error = std::current_exception();
          }
        },
        &context);
    if (context.error) std::rethrow_exception(context.error);
  }

  // Returns whether the program wants the call to end (see opdock_cancel), for an op that may
  // block.
  bool is_cancelled() const {
    const opdock_cancel* table = extension<opdock_cancel>(OPDOCK_CANCEL_1);
    return table != nullptr && table->is_cancelled(call_) != 0;
  }

  // Keeps the memory of an argument until the returned object is destroyed, on any thread, even
  // after the call. The op must have the flag `retains`.
  Retained retain(Tensor argument) const {
    const opdock_retain* table = extension<opdock_retain>(OPDOCK_RETAIN_1);
    if (table == nullptr) {
      throw Error(OPDOCK_UNSUPPORTED, "this host has no " OPDOCK_RETAIN_1 "; use a newer Opdock");
    }
    opdock_retained* retained = nullptr;
    done(table->retain(call_, argument.get(), &retained));
    return Retained(table, retained);
  }

  // Returns a driver function that the host table does not wrap, such as
  // driver_symbol<decltype(&cuMemcpyAsync)>("cuMemcpyAsync"); NULL if there is none.
  template <class Function>
  Function driver_symbol(const char* name) const {
    return reinterpret_cast<Function>(call_->host->driver_symbol(device().type, name));
  }

 private:
  // Throws if a host function has failed; that function has written its text already.
  static void done(opdock_status status) {
    if (status != OPDOCK_OK) throw Error(status, std::string());
  }
};

// ------------------------------------------------------------------------------- the C functions

namespace detail {

// Runs `body`; turns whatever it throws into a status and a text in the call's error buffer.
template <class Body>
opdock_status guard(const opdock_call* call, Body&& body) noexcept {
  try {
    body();
    return OPDOCK_OK;
  } catch (const Error& error) {
    if (error.what()[0] == '\0') return error.status();
    return call->host->set_error(call, error.status(), error.what());
  } catch (const std::bad_alloc&) {
    return call->host->set_error(call, OPDOCK_OUT_OF_MEMORY,
                                 "the plugin found no host memory; free some and try again");
  } catch (const std::exception& error) {
    return call->host->set_error(call, OPDOCK_INTERNAL, error.what());
  } catch (...) {
    return call->host->set_error(call, OPDOCK_INTERNAL,
                                 "the plugin threw something that is no std::exception");
  }
}

inline void expect_count(uint32_t found, size_t wanted) {
  if (found != wanted) {
    throw Error(OPDOCK_INTERNAL,
                concat("found ", found, " arguments, and the plugin's function takes ", wanted,
                       "; make its parameters those of the schema"));
  }
}

template <class First, class... Args, size_t... I>
void apply_plan(void (*plan)(First, Args...), Plan& p, const opdock_value* args,
                std::index_sequence<I...>) {
  (void)args;
  plan(p, Reader<std::decay_t<Args>>::read(args[I])...);
}
template <class... Args>
opdock_status plan_entry(void (*plan)(Plan&, Args...), const opdock_call* call,
                         const opdock_value* args, uint32_t num_args, opdock_plan* out) noexcept {
  return guard(call, [&] {
    expect_count(num_args, sizeof...(Args));
    Plan p(call, out);
    apply_plan(plan, p, args, std::index_sequence_for<Args...>{});
    p.finish();
  });
}

inline opdock_status prepare_entry(void (*prepare)(Call&), const opdock_call* call) noexcept {
  return guard(call, [&] {
    Call c(call);
    prepare(c);
  });
}
inline opdock_status prepare_entry(std::nullptr_t, const opdock_call*) noexcept {
  return OPDOCK_OK;
}

template <class... Args, size_t... I>
void apply_run(void (*run)(Call&, Results, Args...), Call& call, Results results,
               const opdock_value* args, std::index_sequence<I...>) {
  (void)args;
  run(call, results, Reader<std::decay_t<Args>>::read(args[I])...);
}
template <class... Args>
opdock_status run_entry(void (*run)(Call&, Results, Args...), const opdock_call* call,
                        const opdock_value* args, uint32_t num_args, opdock_value* results,
                        uint32_t num_results) noexcept {
  return guard(call, [&] {
    expect_count(num_args, sizeof...(Args));
    Call c(call);
    apply_run(run, c, Results(results, num_results), args, std::index_sequence_for<Args...>{});
  });
}

}  // namespace detail
}  // namespace opdock

// With the header that opdock-pack --ops-header writes, OPDOCK_OP is checked against plugin.toml:
// its name must be an op's, and the functions must have the parameters of that op's schema.
#ifdef OPDOCK_OPS_H
#include "opdock/signature.hpp"
#include OPDOCK_OPS_H
#define OPDOCK_DECLARED(OP, ...) static_assert(::opdock::ops_in_plugin_toml::OP(__VA_ARGS__));
#else
#define OPDOCK_DECLARED(OP, ...)
#endif

// Defines opdock_NAME_plan alone, for an op that is a formula and takes less than the formula
// would:
//   void plan(opdock::Plan&, …)
// describes the results too, as that of any op, and throws for the arguments that it refuses.
#define OPDOCK_PLAN(NAME, PLAN)                                                                    \
  OPDOCK_DECLARED(op_##NAME, PLAN)                                                                 \
  extern "C" opdock_status opdock_##NAME##_plan(const opdock_call*, const opdock_value*, uint32_t, \
                                                opdock_plan*);                                     \
  extern "C" opdock_status opdock_##NAME##_plan(const opdock_call* opdock_c,                       \
                                                const opdock_value* opdock_a, uint32_t opdock_n,   \
                                                opdock_plan* opdock_p) {                           \
    return ::opdock::detail::plan_entry(PLAN, opdock_c, opdock_a, opdock_n, opdock_p);             \
  }

// Defines the C functions opdock_NAME_plan, opdock_NAME_prepare and opdock_NAME_run, which the
// entry that opdock-pack generates refers to, from the functions
//   void plan(opdock::Plan&, …), void prepare(opdock::Call&) or nullptr,
//   void run(opdock::Call&, opdock::Results, …).
// Use it at namespace scope, once for each op; a semicolon after it is optional.
#define OPDOCK_OP(NAME, PLAN, PREPARE, RUN)                                                        \
  OPDOCK_DECLARED(op_##NAME, PLAN, RUN)                                                            \
  extern "C" opdock_status opdock_##NAME##_plan(const opdock_call*, const opdock_value*, uint32_t, \
                                                opdock_plan*);                                     \
  extern "C" opdock_status opdock_##NAME##_plan(const opdock_call* opdock_c,                       \
                                                const opdock_value* opdock_a, uint32_t opdock_n,   \
                                                opdock_plan* opdock_p) {                           \
    return ::opdock::detail::plan_entry(PLAN, opdock_c, opdock_a, opdock_n, opdock_p);             \
  }                                                                                                \
  extern "C" opdock_status opdock_##NAME##_prepare(const opdock_call*);                            \
  extern "C" opdock_status opdock_##NAME##_prepare(const opdock_call* opdock_c) {                  \
    return ::opdock::detail::prepare_entry(PREPARE, opdock_c);                                     \
  }                                                                                                \
  extern "C" opdock_status opdock_##NAME##_run(const opdock_call*, const opdock_value*, uint32_t,  \
                                               opdock_value*, uint32_t);                           \
  extern "C" opdock_status opdock_##NAME##_run(const opdock_call* opdock_c,                        \
                                               const opdock_value* opdock_a, uint32_t opdock_n,    \
                                               opdock_value* opdock_o, uint32_t opdock_m) {        \
    return ::opdock::detail::run_entry(RUN, opdock_c, opdock_a, opdock_n, opdock_o, opdock_m);     \
  }

#endif  // OPDOCK_PLUGIN_HPP_
