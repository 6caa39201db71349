// Tests when the library's plans are made, how many are kept, and what is told about it.
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <thread>

#include "attention/decisions.h"
#include "attention/forms.h"
#include "attention/price.h"
#include "attention_case.h"

namespace opdock::testing_support {
namespace {

using attention::Form;
using attention::Forms;

Form form_of(const opdock_attention& what) {
  Form form;
  EXPECT_TRUE(attention::form_of(what, &form).ok());
  return form;
}

TEST(AttentionPrice, OperationsAreThoseThatMasksLeave) {
  Case what(0, 0, 40, 100);
  const double each = 2 * 4 * 2 * (8 + 16);  // rows, heads, both products of a pair
  const auto operations = [&] { return attention::operations_of(form_of(what.what)); };
  EXPECT_DOUBLE_EQ(operations(), each * 40 * 100);
  what.what.flags = kCausal;
  EXPECT_DOUBLE_EQ(operations(), each * 40 * 20);
  what.what.flags = kBottomRight;
  EXPECT_DOUBLE_EQ(operations(), each * 40 * 80);
  what.what.window = 10;
  EXPECT_DOUBLE_EQ(operations(), each * 40 * 10);
  what.what.flags |= kBackward;
  EXPECT_DOUBLE_EQ(operations(), 2.5 * each * 40 * 10);
}
TEST(AttentionPrice, IsTheDifferenceOfTwoRates) {
  Case what(0, 0, 40, 100);
  const Form form = form_of(what.what);
  opdock_device_facts facts = {};
  facts.arch_major = 9;
  facts.multiprocessors = 132;
  const double operations = attention::operations_of(form) / 132;
  EXPECT_NEAR(attention::lost_seconds(form, facts), operations / 1.55e12 - operations / 3.9e12,
              1e-15);
  // Each architecture since 8.0 has its rates, as those that are not listed have.
  for (const auto& [major, minor] :
       {std::pair{8u, 0u}, {8u, 9u}, {10u, 3u}, {12u, 1u}, {13u, 0u}}) {
    facts.arch_major = major;
    facts.arch_minor = minor;
    EXPECT_GT(attention::lost_seconds(form, facts), 0) << major << "." << minor;
  }
  facts.arch_major = 7;
  EXPECT_EQ(attention::lost_seconds(form, facts), 0);
}

TEST(AttentionForms, TheOldestWithoutAPlanIsForgotten) {
  Forms forms;
  Form form = {};
  for (size_t i = 0; i < Forms::kMaxForms; ++i) {
    form.queries = static_cast<int64_t>(i);
    forms.add(form)->lost = 1;
  }
  form.queries = 0;
  ASSERT_NE(forms.find(form), nullptr);  // used now
  form.queries = -1;
  forms.add(form);
  EXPECT_EQ(forms.size(), Forms::kMaxForms);
  form.queries = 0;
  EXPECT_NE(forms.find(form), nullptr);
  form.queries = 1;
  EXPECT_EQ(forms.find(form), nullptr);
}

// This test runs in a process of its own, where the stand-in does not compute.
TEST_F(Attention, DISABLED_TheOldestPlanIsForgotten) {
  std::thread([&] {  // with plans of its own, or those of a thread that has ended
    Case captured(0, 0, 5, 7), first(0, 0, 6, 7);
    ASSERT_EQ(caller.call(&captured), OPDOCK_OK) << caller.f.error;
    driver.captures = true;
    ASSERT_EQ(caller.call(&captured), OPDOCK_OK) << caller.f.error;
    driver.captures = false;
    ASSERT_EQ(caller.call(&first), OPDOCK_OK) << caller.f.error;
    driver.waited = 0;
    for (size_t i = 0; i < Forms::kMaxPlans; ++i) {
      Case fresh(0, 1 + static_cast<int64_t>(i % 60), 7 + static_cast<int64_t>(i / 60), 70);
      ASSERT_EQ(caller.call(&fresh), OPDOCK_OK) << caller.f.error;
    }
    EXPECT_GT(driver.waited, 0);
    const int graphs = count("graph");
    ASSERT_EQ(caller.call(&captured), OPDOCK_OK);
    EXPECT_EQ(count("graph"), graphs);
    ASSERT_EQ(caller.call(&first), OPDOCK_OK);
    EXPECT_EQ(count("graph"), graphs + 1);
  })
      .join();
  EXPECT_EQ(driver.entered, 0);
}

// This test runs in a process of its own, without OPDOCK_ATTENTION.
TEST_F(Attention, DISABLED_PlansAreEarned) {
  const std::string link = ::testing::TempDir() + "/earned/libcudnn.so.9";
  std::filesystem::create_directories(std::filesystem::path(link).parent_path());
  std::filesystem::remove(link);
  std::filesystem::create_symlink(std::getenv("FAKE_CUDNN_LIBRARY"), link);
  ASSERT_NE(dlopen(link.c_str(), RTLD_NOW), nullptr) << dlerror();
  goes_on = true;
  driver.known.multiprocessors = 1;
  // A call loses 2 * 4 * 2048^2 * 2 * (8 + 16) operations, each by the difference of the rates.
  Case what(0, 0, 2048, 2048);
  const double lost = 2. * 4 * 2048 * 2048 * 48 * (1 / 1.55e12 - 1 / 3.9e12);
  const int calls = static_cast<int>(std::ceil(0.1 / lost));
  EXPECT_EQ(calls, 160);
  for (int i = 0; i < calls; ++i) {
    ASSERT_EQ(caller.call(&what), OPDOCK_UNSUPPORTED) << i;
    ASSERT_EQ(planned, OPDOCK_UNSUPPORTED);
  }
  EXPECT_NE(std::string(caller.f.error).find("has not earned a plan"), std::string::npos)
      << caller.f.error;
  EXPECT_EQ(count("graph"), 0);
  const std::string& logged = caller.f.resolver.logged;
  EXPECT_NE(logged.find("has not earned a plan"), std::string::npos) << logged;
  EXPECT_EQ(logged.find("has not earned a plan"), logged.rfind("has not earned a plan"));
  auto told = attention::decisions_about("attention");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].form, "float16 2x4x2048 over 2x2048, heads of 8 and 16");
  EXPECT_EQ(told[0].device, "cuda:0");
  EXPECT_FALSE(told[0].is_planned);
  EXPECT_NE(told[0].why.find("has not earned a plan"), std::string::npos) << told[0].why;
  // It has earned its plan, which a capture does not get.
  driver.captures = true;
  EXPECT_EQ(caller.call(&what), OPDOCK_UNSUPPORTED);
  EXPECT_NE(std::string(caller.f.error).find("the stream being captured"), std::string::npos);
  EXPECT_EQ(count("graph"), 0);
  driver.captures = false;
  EXPECT_EQ(caller.call(&what), OPDOCK_OK) << caller.f.error;
  EXPECT_EQ(planned, OPDOCK_OK);
  EXPECT_EQ(count("graph"), 1);
  EXPECT_EQ(count("execute"), 1);
  told = attention::decisions_about("attention");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].is_planned);
  EXPECT_EQ(told[0].why, "");
  EXPECT_TRUE(attention::decisions_about("other").empty());
  // The next form begins anew.
  what.what.scale = 2;
  EXPECT_EQ(caller.call(&what), OPDOCK_OK);
  what.what.queries = 2047;
  EXPECT_EQ(caller.call(&what), OPDOCK_UNSUPPORTED);
  // A graph repeats own kernels: a capture earns the plan for later calls.
  driver.captures = true;
  EXPECT_EQ(caller.call(&what), OPDOCK_UNSUPPORTED);
  EXPECT_NE(std::string(caller.f.error).find("the stream being captured"), std::string::npos);
  EXPECT_NE(logged.find("the stream being captured"), std::string::npos);
  EXPECT_EQ(count("graph"), 1);
  driver.captures = false;
  EXPECT_EQ(caller.call(&what), OPDOCK_OK) << caller.f.error;
  EXPECT_EQ(count("graph"), 2);
  // Where equal calls must give equal bits, nothing changes from one call to the next.
  opdock_call_options options = {};
  options.struct_size = sizeof options;
  options.wants_deterministic = [] { return int32_t{1}; };
  caller.options = &options;
  for (const uint32_t flags : {0u, kBackward}) {
    Case fresh(flags, 0, 600, 600);
    EXPECT_EQ(caller.call(&fresh), OPDOCK_OK) << caller.f.error;
  }
  EXPECT_EQ(count("graph"), 4);
}

}  // namespace
}  // namespace opdock::testing_support
