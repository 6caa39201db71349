// Compiles against the header that opdock-pack --ops-header writes, which shows that it accepts the
// types that plugin.hpp reads. The tests below check what it refuses and its messages;
// tests/author/test_mistakes.py checks the compilers' own output.
// SPDX-License-Identifier: Apache-2.0
#include "pack/ops_header.h"

#include <gtest/gtest.h>

#include <complex>

#include "opdock/plugin.hpp"  // with OPDOCK_OPS_H, from every_type/plugin.toml

#ifndef OPDOCK_OPS_H
#error "found no OPDOCK_OPS_H: nothing would be tested"
#endif

namespace {

using opdock::Call;
using opdock::Device;
using opdock::Dtype;
using opdock::List;
using opdock::Plan;
using opdock::Results;
using opdock::Stream;
using opdock::Tensor;
using std::optional;

struct Box {
  static constexpr char kType[] = "box";
  static constexpr uint32_t kVersion = 1;
};

// The types of plugin.hpp's table, and the others that it allows, by value and by reference.
void every_plan(Plan&, Tensor, Tensor, optional<Tensor>, List<Tensor>, List<optional<Tensor>>,
                int64_t, double, bool, std::string_view, std::complex<double>, Dtype, Device,
                Stream, const opdock_generator*, opdock::Object<Box>, optional<int64_t>,
                List<int64_t>, optional<List<double>>, List<bool>) {}
void every_run(Call&, Results, const Tensor&, optional<Tensor>, const optional<Tensor>&,
               const std::vector<Tensor>&, std::vector<optional<Tensor>>, const int64_t, float,
               const bool&, const std::string_view, const std::complex<double>&, Dtype, Device,
               Stream, const opdock_generator*, opdock::Object<Box>, optional<int64_t>,
               std::vector<int64_t>, optional<std::vector<float>>, std::vector<bool>) noexcept {}
OPDOCK_OP(every, every_plan, nullptr, every_run)

void nothing_plan(Plan&) {}
void nothing_run(Call&, Results) {}
OPDOCK_OP(nothing, nothing_plan, nullptr, nothing_run)

}  // namespace

namespace opdock {
namespace {

using detail::Complex;
using detail::takes;

TEST(OpsHeader, OtherParametersAreRefused) {
  using Wanted = void(Plan&, Tensor, double);
  EXPECT_TRUE((takes<void(Plan&, Tensor, double), Wanted>));
  EXPECT_FALSE((takes<void(Plan&, Tensor), Wanted>)) << "too few";
  EXPECT_FALSE((takes<void(Plan&, Tensor, double, double), Wanted>)) << "too many";
  EXPECT_FALSE((takes<void(Plan&, double, Tensor), Wanted>)) << "in another order";
  EXPECT_FALSE((takes<void(Plan&, Tensor, int64_t), Wanted>));
  EXPECT_FALSE((takes<void(Plan&, Tensor, int), Wanted>));
  EXPECT_FALSE((takes<void(Plan&, Tensor, bool), Wanted>));
  EXPECT_FALSE((takes<void(Plan&, Tensor, List<double>), Wanted>));
  EXPECT_FALSE((takes<void(Call&, Tensor, double), Wanted>)) << "prepare's or run's";
  EXPECT_FALSE((takes<void(Plan, Tensor, double), Wanted>)) << "a copy of the plan";
  EXPECT_FALSE((takes<int(Plan&, Tensor, double), Wanted>)) << "a result";
  EXPECT_FALSE((takes<void(Tensor, double), Wanted>)) << "no plan";
}

TEST(OpsHeader, WhatMayBeNoneMustBeOptional) {
  EXPECT_FALSE((takes<void(Plan&, Tensor), void(Plan&, std::optional<Tensor>)>));
  EXPECT_FALSE((takes<void(Plan&, List<Tensor>), void(Plan&, List<std::optional<Tensor>>)>));
  EXPECT_FALSE((takes<void(Plan&, List<double>), void(Plan&, std::optional<List<double>>)>));
  EXPECT_TRUE((takes<void(Plan&, List<std::optional<Tensor>>), void(Plan&, List<Tensor>)>));
  EXPECT_TRUE((takes<void(Plan&, std::optional<std::complex<double>>), void(Plan&, Complex)>));
  EXPECT_FALSE((takes<void(Plan&, std::complex<float>), void(Plan&, Complex)>));
}

TEST(OpsHeader, MessagesNameTheOpItsPlaceAndTheFunctionWanted) {
  Manifest manifest;
  manifest.path = "a b/plugin.toml";
  OpDecl op;
  op.name = "f";
  op.schema = "f(Tensor x, *, str s=\"a\", complex? c=None) -> Tensor";
  op.schema_line = 7;
  manifest.ops.push_back(op);
  const std::string text = pack::ops_header(manifest);
  // Quotes and question marks appear there as octal escapes.
  for (const char* part :
       {R"(op \042f\042: the parameters of run are not those that a b/plugin.toml:7 declares, )"
        R"(f(Tensor x, *, str s=\042a\042, complex\077 c=None) -> Tensor: wanted void run(Call&, )"
        R"(Results, Tensor x, std::string_view s, std::optional<std::complex<double>> c))",
        "wanted void plan(Plan&, Tensor x, std::string_view s, "
        "std::optional<std::complex<double>> c)",
        "constexpr bool op_f("})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

}  // namespace
}  // namespace opdock
