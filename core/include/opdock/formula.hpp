// opdock/formula.hpp: functions that are made of formulas while a program runs, in C++17, over
// formula.h. Header-only; link libopdock.
// SPDX-License-Identifier: Apache-2.0
//
//   opdock::Runtime runtime;
//   opdock::Formula swish(runtime, "x * sigmoid(a * x)", "swish(Tensor x, float a=1.0) -> Tensor");
//   const std::vector<float> x(8, 2), ones(8, 1);
//   const opdock::TensorView tx(x.data(), {8}), grad(ones.data(), {8});
//   opdock::ResultList y = swish(tx, opdock::named("a", 0.5));
//   opdock::ResultList slope = swish.gradient("x")(grad, tx, opdock::named("a", 0.5));
//   std::printf("%g %g\n", y[0].data<float>()[0], slope[0].data<float>()[0]);
//   std::printf("%s\n%s\n", swish.text().c_str(), swish.source("float16").c_str());
//
// Everything that fails throws opdock::Error; an error in a formula names the line and the column.
// Threads and lifetimes are those of formula.h: a function lives as long as its runtime.
#ifndef OPDOCK_FORMULA_HPP_
#define OPDOCK_FORMULA_HPP_

#include <memory>
#include <string>
#include <utility>

#include "opdock/formula.h"
#include "opdock/opdock.hpp"

namespace opdock {

// The function of a formula, which is called as every Function is. It may be copied.
class Formula : public Function {
 public:
  // schema: "name(Tensor x, …) -> Tensor"; empty: the names that the formula uses are tensors, in
  // the order of their first use. Compiles nothing.
  Formula(const Runtime& runtime, std::string formula, std::string schema = {})
      : Function(make(runtime.get(), formula, schema)),
        runtime_(runtime.get()),
        formula_(std::move(formula)),
        schema_(std::move(schema)) {}

  // Returns the function of the gradients of tensor parameters. params: their names, separated by
  // commas. It takes first the gradient of each result, then what the formula takes, and returns
  // the gradients in the order of `params`; opdock_make_gradient says in which shapes.
  Function gradient(const std::string& params) const {
    opdock_function* made = nullptr;
    detail::checked([&](char* text, uint32_t size) {
      return opdock_make_gradient(runtime_, text_or_null(schema_), formula_.c_str(), params.c_str(),
                                  &made, text, size);
    });
    return Function(made);
  }

  // Returns the formula in its own layout, one statement a line.
  std::string text() const { return opdock_function_formula(get()); }

  // Returns the source of the kernel that a call on a GPU compiles, for tensors of the dtype
  // ("float16") in contiguous rows.
  std::string source(const std::string& dtype) const {
    char* written = nullptr;
    detail::checked([&](char* text, uint32_t size) {
      return opdock_formula_source(get(), dtype.c_str(), &written, text, size);
    });
    const std::unique_ptr<char, void (*)(void*)> owned(written, opdock_free);
    return written;
  }

 private:
  static const char* text_or_null(const std::string& text) {
    return text.empty() ? nullptr : text.c_str();
  }
  static opdock_function* make(opdock_runtime* runtime, const std::string& formula,
                               const std::string& schema) {
    opdock_function* made = nullptr;
    detail::checked([&](char* text, uint32_t size) {
      return opdock_make_function(runtime, text_or_null(schema), formula.c_str(), &made, text,
                                  size);
    });
    return made;
  }

  opdock_runtime* runtime_;
  std::string formula_, schema_;
};

}  // namespace opdock
#endif  // OPDOCK_FORMULA_HPP_
