// SPDX-License-Identifier: Apache-2.0
#include "fused/cpu_run.h"

#include <chrono>

#include "call/invocation.h"
#include "call/parallel.h"
#include "formula/cpu_call.h"

namespace opdock {
namespace {

// Runs compiled code, whose pieces are the interpreter's.
void run_compiled(const opdock_call* call, opdock_formula_function code, const CpuWork& work) {
  struct Context {
    opdock_formula_function code;
    const opdock_formula_call* call;
  };
  formula::CpuCall what(work.space, work.inputs, work.results, work.scalars,
                        work.instance.numbers.size());
  const formula::Interpreter& on_cpu = work.instance.on_cpu;
  if (work.partial != nullptr) what.set_sums(on_cpu.sums(work.space, work.partial));
  Context context = {code, what.get()};
  parallel_extension()->parallel_for(
      call, static_cast<uint64_t>(on_cpu.pieces(work.space)),
      static_cast<uint64_t>(on_cpu.grain(work.space)),
      [](void* given, uint64_t begin, uint64_t end) {
        const Context& of = *static_cast<const Context*>(given);
        of.code(of.call, static_cast<int64_t>(begin), static_cast<int64_t>(end));
      },
      &context);
}

void interpret(const opdock_call* call, const CpuWork& work) {
  const formula::Interpreter& on_cpu = work.instance.on_cpu;
  parallel_extension()->parallel_for(
      call, static_cast<uint64_t>(on_cpu.pieces(work.space)),
      static_cast<uint64_t>(on_cpu.grain(work.space)),
      [](void* context, uint64_t begin, uint64_t end) {
        const CpuWork& of = *static_cast<const CpuWork*>(context);
        of.instance.on_cpu.run(of.space, of.inputs, of.results, of.scalars,
                               static_cast<int64_t>(begin), static_cast<int64_t>(end), of.partial);
      },
      const_cast<CpuWork*>(&work));
}

// Adds up the sums of chunks of rows.
void add_sums(const opdock_call* call, const CpuWork& work) {
  parallel_extension()->parallel_for(
      call, static_cast<uint64_t>(work.instance.on_cpu.sum_pieces(work.space)), 1,
      [](void* context, uint64_t begin, uint64_t end) {
        const CpuWork& of = *static_cast<const CpuWork*>(context);
        of.instance.on_cpu.add_sums(of.space, of.partial, of.results, static_cast<int64_t>(begin),
                                    static_cast<int64_t>(end));
      },
      const_cast<CpuWork*>(&work));
}

}  // namespace

opdock_status run_on_cpu(const opdock_call* call, const CpuWork& work) {
  CpuCode& compiled = work.instance.cpu_code;
  const opdock_formula_function code =
      compiled.get(static_cast<Invocation*>(call->host_data), work.space.elements());
  if (code != nullptr) {
    run_compiled(call, code, work);
    compiled.computed();
  } else {
    const auto start = std::chrono::steady_clock::now();
    interpret(call, work);
    compiled.interpreted(std::chrono::steady_clock::now() - start);
  }
  if (work.partial != nullptr) add_sums(call, work);
  return OPDOCK_OK;
}

}  // namespace opdock
